/** Fills a control plane through its API with something of everything that the console shows. */
import type { Server } from './server';

export type Call = <T = Record<string, unknown>>(method: string, path: string, body?: unknown, token?: string) => Promise<T>;

export function caller(server: Pick<Server, 'url'>, defaultToken: string): Call {
  return async (method, path, body, token = defaultToken) => {
    const response = await fetch(`${server.url}/api/v1${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, ...(body !== undefined && { 'Content-Type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text ? JSON.parse(text) : undefined) as never;
  };
}

export interface EnrolledSite {
  id: string;
  agent: string;
}

export const sha256 = 'a'.repeat(64);

export async function enroll(call: Call, enrollmentToken: string, name: string, labels: Record<string, string> = {}): Promise<EnrolledSite> {
  const made = await call<{ site_id: string; agent_token: string }>('POST', '/enroll', { name, enrollment_token: enrollmentToken, version: '0.3.1', labels }, '');
  return { id: made.site_id, agent: made.agent_token };
}

export interface Fixtures {
  org: { id: string; admin_token: string; viewer_token: string };
  sites: Record<string, EnrolledSite>;
  campaign: { paused: string; draft: string };
  route: { good: string; bad: string };
  deployment: { running: string; failed: string; unheard: string };
}

/** Asks until the answer is good: what the control plane does in the background takes its time. */
export async function until<T>(what: string, ask: () => Promise<T>, good: (answer: T) => boolean): Promise<T> {
  let last: T | undefined;
  for (let i = 0; i < 200; i++) {
    last = await ask();
    if (good(last)) return last;
    await new Promise((next) => setTimeout(next, 100));
  }
  throw new Error(`${what} did not happen; last answer: ${JSON.stringify(last)}`);
}

export async function fill(server: Server, sink: string): Promise<Fixtures> {
  const { admin_token, enrollment_token } = server.credentials;
  const call = caller(server, admin_token);

  const sites: Record<string, EnrolledSite> = {};
  const names: Record<string, Record<string, string>> = {
    'plant-1': { zone: 'north', line: 'a' },
    'plant-2': { zone: 'south' },
    'depot-harbour': { zone: 'north', kind: 'depot' },
    'walk-me': {},
    'retired-1': { zone: 'east' },
    'quiet-1': { zone: 'west' },
  };
  for (const [name, labels] of Object.entries(names)) {
    sites[name] = await enroll(call, enrollment_token, name, labels);
  }
  const site = (name: string) => sites[name] as EnrolledSite;
  await call('POST', `/sites/${site('retired-1').id}/revoke`);
  const org = await call<Fixtures['org'] & { enrollment_token: string }>('POST', '/orgs', { name: 'Acme Logistics' });
  sites['acme-1'] = await enroll(call, org.enrollment_token, 'acme-1', { zone: 'north' });

  const { id: plant, agent } = site('plant-1');
  for (let n = 1; n <= 6; n++) {
    const id = `press-${n}`;
    await call('POST', '/devices/register', { device_id: id, name: `Press ${n}`, model: 'HX-200', firmware_version: '1.9.2', labels: { line: 'a' } }, agent);
    await call('POST', `/agent/twins/${id}/reported`, { site_id: plant, reported: { mode: 'auto', interval_seconds: 30, sensors: { oven: { celsius: 180 + n } } } }, agent);
  }
  await call('PUT', '/twins/press-1/desired', { desired: { mode: 'auto', interval_seconds: 10, sensors: { oven: { celsius: 175, alarm: true } } } });

  const draft = { version: '2.0.0', url: 'https://firmware.example.com/2.0.0.bin', sha256, size: 1_048_576 };
  const first = await call<{ id: string }>('POST', '/ota/campaigns', { ...draft, name: 'Spring release', targets: { labels: { line: 'a' } }, stages: [50, 100] });
  await call('POST', `/ota/campaigns/${first.id}/start`);
  type Devices = { device_id: string; outcome: string }[];
  const asked = await until('the first stage', () => call<Devices>('GET', `/ota/campaigns/${first.id}/devices?outcome=pending`), (d) => d.length === 3);
  const states = ['succeeded', 'failed', 'failed'];
  // Which devices are asked first is up to the server. Tests update press-1 and delete press-6: another one must stay failed.
  const passing = (d: { device_id: string }) => Number(['press-1', 'press-6'].includes(d.device_id));
  asked.sort((a, b) => passing(b) - passing(a));
  for (const [i, d] of asked.entries()) {
    await call('POST', `/agent/devices/${d.device_id}/ota/status`, { site_id: plant, status: { state: 'downloading', progress: 40 } }, agent);
    await call('POST', `/agent/devices/${d.device_id}/ota/status`, { site_id: plant, status: states[i] === 'failed' ? { state: 'failed', message: 'checksum of the artifact differs' } : { state: 'succeeded', progress: 100 } }, agent);
  }
  const second = await call<{ id: string }>('POST', '/ota/campaigns', { ...draft, name: 'Depot scanners', targets: { site_ids: [site('depot-harbour').id] } });

  const good = await call<{ id: string }>('POST', '/routes', { name: 'Temperatures to the historian', topic: 'temp.*', target_url: `${sink}/ok` });
  const bad = await call<{ id: string }>('POST', '/routes', { name: 'Door alarms', topic: 'door.*', target_url: `${sink}/refuse`, retry_max: 1 });
  for (let n = 0; n < 12; n++) {
    await call('POST', '/events', { site_id: plant, topic: 'temp.oven', payload: { celsius: 180 + n, unit: { name: 'oven', line: 'a' } } });
  }
  for (let n = 0; n < 6; n++) {
    await call('POST', '/events', { site_id: site('plant-2').id, topic: 'door.opened', payload: { door: n, badge: `b-${n}` }, headers: { 'X-Door': String(n) } });
  }

  const deploy = (siteId: string, name: string, image: string, more: object = {}) => call<{ id: string }>('POST', '/deployments', { site_id: siteId, name, image, version: '1.4.0', ...more });
  const running = await deploy(plant, 'gateway', 'ghcr.io/acme/gateway:1.4.0', {
    env: { LOG_LEVEL: 'info', MQTT_HOST: 'broker.local' },
    ports: [{ container_port: 80, host_port: 8080 }],
    health: { command: ['curl', '-f', 'http://localhost/health'], interval_seconds: 15 },
  });
  await call('POST', `/agent/deployments/${running.id}/status`, { site_id: plant, status: 'running', observed_revision: 1 }, agent);
  await call('PATCH', `/deployments/${running.id}`, { image: 'ghcr.io/acme/gateway:1.5.0', version: '1.5.0' });
  await call('POST', `/agent/deployments/${running.id}/status`, { site_id: plant, status: 'running', observed_revision: 2 }, agent);
  const failed = await deploy(plant, 'vision', 'ghcr.io/acme/vision:3.0.1');
  await call('POST', `/agent/deployments/${failed.id}/status`, { site_id: plant, status: 'failed', message: 'exit status 137: killed for want of memory', observed_revision: 1 }, agent);
  await deploy(site('plant-2').id, 'gateway', 'ghcr.io/acme/gateway:1.4.0');
  // Its site goes offline: nobody knows how it does then.
  const { id: quiet, agent: silent } = site('quiet-1');
  const unheard = await deploy(quiet, 'logger', 'ghcr.io/acme/logger:2.0');
  await call('POST', `/agent/deployments/${unheard.id}/status`, { site_id: quiet, status: 'running', observed_revision: 1 }, silent);
  await call('POST', '/policy-packs', { name: 'Acme images only', site_id: plant, allowed_images: ['ghcr.io/acme/*', 'docker.io/library/redis:*'] });
  await call('POST', '/enrollment-tokens', { name: 'Installers, week 14', ttl_seconds: 86_400, max_uses: 20 });

  await until('dead letters', () => call<unknown[]>('GET', '/deadletters'), (d) => d.length === 6);
  await until('the pause', () => call<{ paused_reason: string }>('GET', `/ota/campaigns/${first.id}`), (c) => c.paused_reason !== '');
  await until('quiet-1 going offline', () => call<{ status: string }>('GET', `/sites/${site('quiet-1').id}`), (s) => s.status === 'offline');
  return { org, sites, campaign: { paused: first.id, draft: second.id }, route: { good: good.id, bad: bad.id }, deployment: { running: running.id, failed: failed.id, unheard: unheard.id } };
}
