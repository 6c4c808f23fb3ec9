/**
 * Load balancers for the tests: one that balances real packets, in a network
 * namespace of its own, and one that cannot and needs no key.
 *
 *     host: browser, clients, BIRD   10.98.N.1, fd98:N::1         ──── veth ──── namespace: balancer
 *           backends                 10.98.N.11 to .13, fd98:N::11               10.98.N.2, fd98:N::2
 *
 * Clients and backends are both on the host, so packets go there and back over the
 * one veth; source translation keeps them apart.
 */
import { expect, type Page } from '@playwright/test';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, get, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { forward } from './forward';
import { binary, end, freePort } from './server';
import { signIn } from './session';

export const adminKey = 'lb-admin-key-of-the-e2e-tests';
export const readonlyKey = 'lb-readonly-key-of-the-e2e-tests';

/** Why there can be no balancer of real packets here. */
export function whyNot(): string | undefined {
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  for (const program of ['ip', 'ethtool', 'bird']) {
    try {
      execFileSync('sh', ['-c', `command -v ${program}`]);
    } catch {
      return `${program} is not installed`;
    }
  }
  return undefined;
}

export interface Balancer {
  url: string;
  /** The address of the clients, and of the BGP peer. */
  host: string;
  vips: VIPs;
  /** Those of the VIP web, of weights 1, 2 and 3. */
  backends: [Backend, Backend, Backend];
  /** Replaces the configuration file; the daemon notices by itself. */
  write: (yaml: string) => void;
  config: string;
  call: <T = unknown>(method: string, path: string, body?: unknown) => Promise<T>;
  stop: () => Promise<void>;
}

/** As the console shows them. */
interface VIPs {
  web: string;
  range: string;
  dns: string;
}

const backendPort = 8080;

class Backend {
  private server: Server | undefined;
  constructor(readonly host: string) {}
  /** As the console shows it. */
  get name(): string {
    return `${this.host}:${backendPort}`;
  }
  start(): Promise<void> {
    this.server = createServer((_, response) => response.writeHead(200, { Connection: 'close' }).end('hello'));
    return new Promise((done, fail) => this.server?.once('error', fail).listen(backendPort, this.host, done));
  }
  stop(): Promise<void> {
    this.server?.closeAllConnections();
    return new Promise((done) => (this.server ? this.server.close(() => done()) : done()));
  }
}

const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
const attempt = (program: string, ...args: string[]) => {
  try {
    run(program, ...args);
  } catch {
    // It was never made, or is gone already.
  }
};

const bird = (host: string, node: string, port: number) => `log stderr all;
router id ${host};
protocol device {}
protocol bgp balancer {
  local ${host} port ${port} as 65010;
  neighbor ${node} as 65001;
  strict bind on;
  passive on;
  ipv4 { import all; export none; };
}
`;

const document = (host: string, node: string, addresses: { four: [string, string]; six: string }, backends: string[], six: string, bgpPort: number) => `interface: up0
apiListen: ${node}:9870
vips:
  - address: ${addresses.four[0]}
    port: 80
    snat: true
    healthCheck: {interval: 200ms, timeout: 150ms, rise: 1, fall: 1}
    backends: [${backends.map((address, i) => `{address: ${address}, port: ${backendPort}, weight: ${i + 1}}`).join(', ')}]
  - address: ${addresses.six}
    portRange: 8000-8100
    snat: true
    healthCheck: {port: ${backendPort}}
    backends: [{address: '${six}'}]
  - address: ${addresses.four[1]}
    port: 53
    protocol: udp
    snat: true
    healthCheck: {type: none}
    backends: [{address: ${backends[0]}, port: 53}]
bgp:
  localASN: 65001
  routerID: ${node}
  communities: ['65001:100', no-export]
  peers:
    - {address: ${host}, asn: 65010, port: ${bgpPort}, holdTime: 9s}
    - {address: ${host.replace(/1$/, '9')}, asn: 65011}
`;

async function ready(what: string, done: () => Promise<boolean>, output: () => string): Promise<void> {
  for (let i = 0; i < 200; i++) {
    if (await done().catch(() => false)) return;
    await new Promise((next) => setTimeout(next, 100));
  }
  throw new Error(`${what} is not ready after 20 s:\n${output()}`);
}

function start(program: string, args: string[], env: NodeJS.ProcessEnv = {}): { child: ChildProcess; output: () => string } {
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.once('error', (e) => (output += String(e)));
  return { child, output: () => output };
}

export async function startBalancer(): Promise<Balancer> {
  // The process's number keeps runs apart that are under way at once.
  const n = 1 + (process.pid % 126);
  const [namespace, link] = [`lb-e2e-${process.pid}`, `lbe2e${n}`];
  const [host, node, six] = [`10.98.${n}.1`, `10.98.${n}.2`, `fd98:${n}::11`];
  const addresses = { four: [`198.51.100.${2 * n}`, `198.51.100.${2 * n + 1}`] as [string, string], six: `2001:db8:98::${n}` };
  const backends: Balancer['backends'] = [new Backend(`10.98.${n}.11`), new Backend(`10.98.${n}.12`), new Backend(`10.98.${n}.13`)];
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-lb-e2e-'));
  const children: ChildProcess[] = [];
  const cleanups: { stop: () => unknown }[] = [];
  const stop = async () => {
    await Promise.all(children.map(end));
    await Promise.all(cleanups.map((c) => c.stop()));
    attempt('ip', 'link', 'del', link);
    attempt('ip', 'netns', 'del', namespace);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const inside = (...args: string[]) => run('ip', '-n', namespace, ...args);
    // A run that was killed may have left its link, which holds its addresses and routes.
    attempt('ip', 'link', 'del', link);
    run('ip', 'netns', 'add', namespace);
    run('ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', 'up0', 'netns', namespace);
    run('ip', 'addr', 'add', `${host}/24`, 'dev', link);
    run('ip', 'addr', 'add', `fd98:${n}::1/64`, 'dev', link, 'nodad');
    for (const b of backends) run('ip', 'addr', 'add', `${b.host}/24`, 'dev', link);
    run('ip', 'addr', 'add', `${six}/64`, 'dev', link, 'nodad');
    run('ip', 'link', 'set', link, 'up');
    // Generic XDP sees packets before their checksums are filled in, unless that is done in software.
    run('ethtool', '-K', link, 'tx', 'off');
    inside('addr', 'add', `${node}/24`, 'dev', 'up0');
    inside('addr', 'add', `fd98:${n}::2/64`, 'dev', 'up0', 'nodad');
    inside('link', 'set', 'up0', 'up');
    inside('link', 'set', 'lo', 'up');
    run('ip', 'route', 'add', `${addresses.four[0]}/31`, 'via', node);
    run('ip', 'route', 'add', addresses.six, 'via', `fd98:${n}::2`);

    for (const b of [...backends, new Backend(six)]) {
      await b.start();
      cleanups.push(b);
    }
    cleanups.push(await echo(backends[0].host, 53));
    const bgpPort = await freePort();
    writeFileSync(join(folder, 'bird.conf'), bird(host, node, bgpPort));
    children.push(start('bird', ['-f', '-c', join(folder, 'bird.conf'), '-s', join(folder, 'bird.ctl'), '-P', join(folder, 'bird.pid')]).child);

    const file = join(folder, 'lb.yaml');
    const config = document(host, node, addresses, backends.map((b) => b.host), six, bgpPort);
    const write = (yaml: string) => {
      // At once, as editors do it: half a file would be refused.
      writeFileSync(`${file}.new`, yaml);
      renameSync(`${file}.new`, file);
    };
    write(config);
    const daemon = start('ip', ['netns', 'exec', namespace, binary, 'serve', 'lb', '--config', file], { LB_API_KEY: adminKey, LB_API_READONLY_KEY: `id:console=${readonlyKey}` });
    children.push(daemon.child);
    const forwarding = await forward(node, 9870);
    cleanups.push(forwarding);
    const { url } = forwarding;
    await ready('the balancer', async () => (await fetch(`${url}/readyz`)).ok, daemon.output);

    const call = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
      const response = await fetch(`${url}/api/v1${path}`, { method, headers: { Authorization: `Bearer ${adminKey}`, 'Content-Type': 'application/json' }, body: body === undefined ? null : JSON.stringify(body) });
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
      return (await response.json()) as T;
    };
    const vips = { web: `${addresses.four[0]}:80`, range: `[${addresses.six}]:8000–8100`, dns: `${addresses.four[1]}:53` };
    return { url, host, vips, backends, write, config, call, stop };
  } catch (e) {
    await stop();
    throw e;
  }
}

/** Answers every datagram with itself. */
async function echo(host: string, port: number): Promise<{ stop: () => Promise<void> }> {
  const socket = createSocket('udp4');
  socket.on('message', (message, from) => socket.send(message, from.port, from.address));
  await new Promise<void>((done, fail) => socket.once('error', fail).bind(port, host, done));
  return { stop: () => new Promise((done) => socket.close(() => done())) };
}

/**
 * Sends each VIP one request after the other, each a new flow, until it is stopped. They leave the browser
 * some of the processor. Every answer must be right, unless some may be refused.
 */
export function traffic({ vips }: Balancer, { refused = false } = {}): { stop: () => Promise<void> } {
  let going = true;
  const forever = async (request: () => Promise<string>) => {
    while (going) {
      const answer = await request().catch((e: unknown) => {
        if (!refused) throw e;
        return 'hello';
      });
      if (answer !== 'hello') throw new Error(`the answer is “${answer}”`);
      await new Promise((next) => setTimeout(next, 5));
    }
  };
  const page = (url: string) => () =>
    new Promise<string>((done, fail) => {
      get(url, { agent: false }, (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString())).on('end', () => done(text));
      }).on('error', fail);
    });
  const datagram = () =>
    new Promise<string>((done) => {
      const socket = createSocket('udp4');
      // A datagram may be lost: then it is sent again.
      const send = () => socket.send('hello', 53, vips.dns.split(':')[0]);
      const again = setInterval(send, 1000);
      socket.once('message', (message) => {
        clearInterval(again);
        socket.close();
        done(message.toString());
      });
      send();
    });
  const ended = Promise.all([forever(page(`http://${vips.web}/`)), forever(page(`http://${vips.range.replace(/:8000.*/, '')}:8080/`)), forever(datagram)]);
  // Told of when it is stopped.
  ended.catch(() => undefined);
  const stop = async () => {
    going = false;
    await ended;
  };
  return { stop };
}

const oneVIP = `interface: nowhere0\nvips:\n  - {address: 198.51.100.20, port: 80, healthCheck: {type: none}, backends: [{address: 198.51.100.21}]}\n`;

/** 1,000 VIPs with 10 backends each, those of the last VIPs being down. */
export function manyVIPs(): string {
  const vip = (v: number) => {
    const down = v >= 995;
    const backends = Array.from({ length: 10 }, (_, b) => (down ? `{address: 192.0.2.${v - 994}, port: ${b + 2}}` : `{address: 10.${100 + Math.floor(v / 250)}.${v % 250}.${b + 1}, port: 8080}`));
    return `  - {address: 203.0.${Math.floor(v / 250)}.${1 + (v % 250)}, port: 80, healthCheck: ${down ? '{interval: 1h}' : '{type: none}'}, backends: [${backends.join(', ')}]}`;
  };
  return `interface: nowhere0\nvips:\n${Array.from({ length: 1000 }, (_, v) => vip(v)).join('\n')}\n`;
}

/** A balancer whose interface is not there: it balances nothing, and tells why. */
export async function startHelpless({ env = {}, port, config = oneVIP }: { env?: NodeJS.ProcessEnv; port?: number; config?: string } = {}): Promise<{ url: string; port: number; stop: () => Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-lb-e2e-'));
  const file = join(folder, 'lb.yaml');
  port ??= await freePort();
  writeFileSync(file, config);
  const daemon = start(binary, ['serve', 'lb', '--config', file], { LB_LISTEN: `127.0.0.1:${port}`, LB_METRICS_LISTEN: `127.0.0.1:${await freePort()}`, ...env });
  const url = `http://127.0.0.1:${port}`;
  const stop = async () => {
    await end(daemon.child);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await ready('the balancer', async () => (await fetch(`${url}/healthz`)).ok, daemon.output);
  } catch (e) {
    await stop();
    throw e;
  }
  return { url, port, stop };
}

/** Opens a page as somebody who is signed in already. */
export async function open(page: Page, url: string, key = readonlyKey): Promise<void> {
  await signIn(page, new URL(url).origin, key);
  await page.goto(url);
  await expect(page.getByRole('button', { name: 'Keyboard shortcuts' })).toBeVisible();
}
