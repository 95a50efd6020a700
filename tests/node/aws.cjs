// One credential provider of the SDK for JavaScript, made once, the whole chain or (argument `http`) the one for HTTP alone; for each line of standard input it says which key it would sign with.
const { fromHttp } = require("@aws-sdk/credential-provider-http");
const { defaultProvider } = require("@aws-sdk/credential-provider-node");
const readline = require("node:readline");

async function main() {
  const provider = process.argv[2] === "http" ? fromHttp({}) : defaultProvider();
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
