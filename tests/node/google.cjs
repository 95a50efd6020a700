// One client of GoogleAuth, made once; for each line of standard input it asks the API whose URL is the first argument.
const { GoogleAuth } = require("google-auth-library");
const readline = require("node:readline");

async function main() {
  const auth = new GoogleAuth({ scopes: ["https://www.googleapis.com/auth/cloud-platform"] });
  const client = await auth.getClient();
  console.log(JSON.stringify({ project: await auth.getProjectId() }));
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    try {
      const { data } = await client.request({ url: process.argv[2] });
      console.log(JSON.stringify(data));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
}

main();
