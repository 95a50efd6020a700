// gcp-metadata itself, which keeps nothing: for each line of standard input it fetches a token and asks the API whose URL is the first argument.
const metadata = require("gcp-metadata");
const readline = require("node:readline");

async function main() {
  console.log("{}");
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    try {
      const { access_token } = await metadata.instance("service-accounts/default/token");
      const response = await fetch(process.argv[2], { headers: { Authorization: `Bearer ${access_token}` } });
      console.log(JSON.stringify(await response.json()));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
}

main();
