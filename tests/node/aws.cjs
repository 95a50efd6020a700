// One credential provider of the SDK for JavaScript, made once; for each line of standard input it says which key it would sign with.
const { defaultProvider } = require("@aws-sdk/credential-provider-node");
const readline = require("node:readline");

async function main() {
  const provider = defaultProvider();
  console.log("{}");
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    try {
      const { accessKeyId, accountId } = await provider();
      console.log(JSON.stringify({ key: accessKeyId, account: accountId }));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
}

main();
