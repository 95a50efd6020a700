// One credential client, made once and asked again for each line of standard input.
// The SDK knows no proxy and no other STS than the region's: connections to that host end at the port in argv.
const net = require("node:net");
const readline = require("node:readline");

const [host, port] = process.argv.slice(2);
const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...given) {
  const options = Array.isArray(given[0]) ? given[0][0] : given[0];
  if (options.host === host) Object.assign(options, { host: "127.0.0.1", port: Number(port) });
  return connect.apply(this, given);
};

const { default: Credential } = require("@alicloud/credentials");

const client = new Credential();

async function main() {
  console.log("{}");
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    try {
      const found = await client.getCredential();
      console.log(JSON.stringify({ id: found.accessKeyId, provider: found.providerName }));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
}

main();
