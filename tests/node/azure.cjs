// One WorkloadIdentityCredential, made once and asked again for each line of standard input: how far to set the clock forward, in seconds.
const { DefaultAzureCredential, WorkloadIdentityCredential } = require("@azure/identity");
const readline = require("node:readline");

const now = Date.now;
const options = { disableInstanceDiscovery: true }; // the authority is none of Microsoft's, so nobody could vouch for it
const Kind = process.argv[2] === "default" ? DefaultAzureCredential : WorkloadIdentityCredential;
const credential = new Kind(options);

async function main() {
  console.log("{}");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    Date.now = () => now() + 1000 * Number(line);
    try {
      const { token } = await credential.getToken("https://vault.azure.net/.default");
      console.log(JSON.stringify({ token }));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
}

main();
