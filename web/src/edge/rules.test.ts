/** The rules of the edge console that are plain functions. */
import { describe, expect, it } from 'vitest';
import { alertGroups, firingKinds } from './alert-groups';
import { subjectPath } from './alert-list';
import type { ActivityEntry, Alert, Campaign } from './api';
import { changeOf } from './audit-change';
import { stagesOf } from './campaigns/detail';
import { upTo } from './campaigns/targets';
import { replayText } from './deadletters';
import { known } from './deployments/known';
import { parsePorts, portText } from './deployments/ports';
import { withoutOTA } from './devices/desired';
import { mergeActivity } from './live';
import { campaignsHref, campaignsNote, deploymentsHref, deploymentsNote, devicesHref, devicesNote, routesHref, routesNote } from './notes';
import { shellWord } from '../ui/shell-word';
import { agentCommand } from './sites/enroll';

describe('the command for a new site', () => {
  it.each([
    ['plant-1', 'plant-1'],
    ['two words', "'two words'"],
    ["bob's", "'bob'\\''s'"],
    ['$(reboot)', "'$(reboot)'"],
    ['', "''"],
  ])('writes %j so that a shell takes it as one word', (name, word) => {
    expect(shellWord(name)).toBe(word);
  });
  it('names server, token and site', () => {
    expect(agentCommand('https://edge.example.com', 'menr_x', 'a;b')).toBe("mainstay agent --server https://edge.example.com --enrollment-token menr_x --name 'a;b' --data /var/lib/mainstay-agent");
  });
});

describe('the targets of a campaign', () => {
  it('are divided so that every stage has a device and the last has all', () => {
    expect([-1, 0, 1, 2].map((stage) => upTo([5, 25, 100], stage, 10))).toEqual([0, 1, 3, 10]);
    expect([0, 1].map((stage) => upTo([50, 100], stage, 1))).toEqual([1, 1]);
    expect(upTo([5, 100], 0, 0)).toBe(0);
    expect([0, 1, 2, 3].map((stage) => upTo([1, 2, 3, 100], stage, 10))).toEqual([1, 2, 3, 10]);
  });
  it('stand in stages that say how far the campaign is', () => {
    const base = { stages: [50, 100], counts: { total: 4 }, current_stage: 0, paused_reason: '', status: 'running' } as Campaign;
    const states = (c: Partial<Campaign>) => stagesOf({ ...base, ...c }).map((s) => s.state);
    expect(states({ status: 'draft', current_stage: -1 })).toEqual(['to come', 'to come']);
    expect(states({})).toEqual(['running', 'to come']);
    expect(states({ paused_reason: 'too many failed' })).toEqual(['paused', 'to come']);
    expect(states({ current_stage: 1 })).toEqual(['passed', 'running']);
    expect(states({ status: 'completed', current_stage: 1 })).toEqual(['passed', 'passed']);
    expect(states({ status: 'aborted' })).toEqual(['aborted', 'not reached']);
  });
});

describe('ports', () => {
  it.each([
    ['8080:80/tcp', { container_port: 80, host_port: 8080, protocol: 'tcp' }],
    ['53/udp', { container_port: 53, protocol: 'udp' }],
    ['9000', { container_port: 9000, protocol: 'tcp' }],
  ])('reads %s', (text, port) => {
    expect(parsePorts([text])).toEqual([port]);
    expect(parsePorts([portText(parsePorts([text])[0] as never)])).toEqual([port]);
  });
  it.each(['80:tcp', 'http', '1:2:3', '80/sctp'])('refuses %s', (text) => {
    expect(() => parsePorts([text])).toThrow('is not a port');
  });
});

describe('a deployment', () => {
  const at = '2026-01-01T00:00:00Z';
  it('is as its agent says while its site is heard of', () => {
    expect(known({ status: 'running', site_status: 'online', site_last_seen_at: at })).toEqual({ status: 'running' });
    expect(known({ status: 'running' })).toEqual({ status: 'running' });
  });
  it.each(['offline', 'revoked'] as const)('of a site that is %s is unknown since its site was heard of last', (site_status) => {
    for (const status of ['running', 'stopped', 'pulling'] as const) expect(known({ status, site_status, site_last_seen_at: at })).toEqual({ status: 'unknown', last: { status, at } });
  });
  it.each(['pending', 'failed', 'denied', 'rolled_back'] as const)('that is %s stays so', (status) => {
    expect(known({ status, site_status: 'offline', site_last_seen_at: at })).toEqual({ status });
  });
});

describe('the overview', () => {
  it('does not count as up what it does not know of', () => {
    expect(deploymentsNote({ deployments: { running: 2, pending: 1 } })).toEqual({ value: '2 of 3', note: undefined, bad: false });
    expect(deploymentsNote({ deployments: { unknown: 2 } })).toEqual({ value: '0 of 2', note: '2 unknown: site not online', bad: true });
    expect(deploymentsNote({ deployments: { running: 1, unknown: 1, failed: 1, denied: 1 } })).toEqual({ value: '1 of 4', note: '2 failed or denied, 1 unknown: site not online', bad: true });
  });
  it('counts every way in which an update fails, as campaigns do', () => {
    expect(devicesNote({ devices: 50, ota: { succeeded: 20, failed: 8, timed_out: 6, rolled_back: 4, rejected: 2, canceled: 1, downloading: 3 } })).toMatchObject({ value: '50', note: '21 failed updates' });
    expect(devicesNote({ devices: 1, ota: { succeeded: 1 } }).note).toBeUndefined();
  });
  it('does not count as running a campaign that waits for a person', () => {
    expect(campaignsNote({ campaigns: { running: 1, paused: 1, draft: 2 } })).toEqual({ value: '1', note: '1 waits for a decision, 2 drafts', bad: true });
    expect(campaignsNote({ campaigns: { draft: 1 } })).toEqual({ value: '0', note: '1 draft', bad: false });
  });
  it('leads to the lists of what it counts', () => {
    expect(deploymentsHref({ deployments: { running: 1 } })).toBe('/deployments');
    expect(deploymentsHref({ deployments: { denied: 1 } })).toBe('/deployments?status=failed,denied');
    expect(deploymentsHref({ deployments: { unknown: 1 } })).toBe('/deployments?status=unknown');
    expect(deploymentsHref({ deployments: { failed: 1, unknown: 1 } })).toBe('/deployments?status=failed,denied,unknown');
    expect(devicesHref({ ota: { succeeded: 3 } })).toBe('/devices');
    expect(devicesHref({ ota: { timed_out: 3 } })).toBe('/devices?update=failed,rejected,canceled,timed_out,rolled_back');
    expect(campaignsHref({ campaigns: { running: 3 } })).toBe('/campaigns?status=running');
    expect(campaignsHref({ campaigns: { running: 3, paused: 1 } })).toBe('/campaigns?status=paused');
    expect(routesHref({ routes_failing: 1 })).toBe('/routes?status=failing');
    expect(routesHref({ routes_failing: 0 })).toBe('/routes');
  });
  it('says how many routes fail', () => {
    expect(routesNote({ routes: { enabled: 2, disabled: 1 }, routes_failing: 2 })).toEqual({ note: '3 routes, 2 failing, 1 disabled', bad: true });
    expect(routesNote({ routes: { enabled: 1 }, routes_failing: 0 })).toEqual({ note: '1 route', bad: false });
  });
});

describe('a replay of dead letters', () => {
  const replay = { matched: 4390, delivered: 100 };
  it('tells what the route has counted since, never less than nothing', () => {
    expect(replayText(replay, { delivered: 3110, pending: 1380 }, 'Gates')).toBe('Replay of 4,390 dead letters of Gates: since then the route has delivered 3,010 events, and 1,380 wait. What fails again comes back to the list.');
    expect(replayText(replay, { delivered: 99, pending: 0 }, 'Gates')).toContain('delivered 0 events, and nothing waits now');
  });
  it('says when nothing matched', () => {
    expect(replayText({ matched: 0, delivered: 0 }, { delivered: 0, pending: 0 }, 'Gates')).toBe('No dead letter of Gates matched.');
  });
});

describe('the detail of an audit entry', () => {
  it('is a change when it says how things were and are', () => {
    expect(changeOf({ desired_version: 2, before: { a: 1 }, after: { a: 2 } })).toEqual({ change: { before: { a: 1 }, after: { a: 2 } }, rest: { desired_version: 2 } });
    expect(changeOf({ before: 'noon' })).toEqual({ rest: { before: 'noon' } });
  });
});

describe('activity', () => {
  const line = (id: string) => ({ id }) as ActivityEntry;
  it('is merged newest first, without repeating what the stream sends again', () => {
    const ids = (entries: ActivityEntry[]) => entries.map((e) => e.id);
    expect(ids(mergeActivity([line('2'), line('1')], [line('2'), line('3'), line('4')], 10))).toEqual(['4', '3', '2', '1']);
    expect(ids(mergeActivity([line('2'), line('1')], [line('3')], 2))).toEqual(['3', '2']);
  });
});

describe('what is edited of a twin', () => {
  it('is all but its update', () => {
    expect(withoutOTA({ mode: 'auto', ota: { version: '2' } })).toEqual({ mode: 'auto' });
  });
});

describe('what needs attention', () => {
  const alert = (kind: Alert['kind'], severity: Alert['severity'], day: number) => ({ id: `${kind}${day}`, kind, severity, first_seen_at: `2026-01-${10 + day}T00:00:00Z` }) as Alert;
  it('is grouped by kind, critical kinds first, however old they are', () => {
    const updates = [alert('ota_failed', 'warning', 9), alert('ota_failed', 'warning', 8)];
    const groups = alertGroups({ ota_failed: 21, site_offline: 1, audit_broken: 1 }, [...updates, alert('site_offline', 'critical', 1), alert('audit_broken', 'critical', 2)]);
    expect(groups.map((g) => [g.severity, g.kind, g.count])).toEqual([
      ['critical', 'audit_broken', 1],
      ['critical', 'site_offline', 1],
      ['warning', 'ota_failed', 21],
    ]);
    expect(groups.at(-1)?.newest).toEqual(updates);
  });
  it('counts at least what is shown, and asks only for kinds that fire', () => {
    expect(alertGroups({}, [alert('ota_failed', 'warning', 1)])[0]?.count).toBe(1);
    expect(firingKinds({ alerts: { site_offline: 1, ota_failed: 0, audit_broken: 2 } })).toEqual(['audit_broken', 'site_offline']);
  });
});

describe('alerts', () => {
  it('lead to what they are about', () => {
    const alert = { site_id: 's', subject: 'x/1' };
    expect(subjectPath({ ...alert, kind: 'route_failing' })).toBe('/routes/x%2F1');
    expect(subjectPath({ ...alert, kind: 'deadletter_backlog' })).toBe('/deadletters?route=x%2F1');
    expect(subjectPath({ ...alert, kind: 'ota_failed' })).toBe('/devices/x%2F1');
    expect(subjectPath({ ...alert, kind: 'policy_violation' })).toBe('/deployments/x%2F1');
  });
});
