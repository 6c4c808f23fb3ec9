/** The rules of the edge console that are plain functions. */
import { describe, expect, it } from 'vitest';
import { subjectPath } from './alert-list';
import type { ActivityEntry, Campaign } from './api';
import { stagesOf } from './campaigns/detail';
import { isTarget, upTo } from './campaigns/targets';
import { parsePorts, portText } from './deployments/ports';
import { withoutOTA } from './devices/desired';
import { mergeActivity } from './live';
import { agentCommand, shellWord } from './sites/enroll';

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
  const device = { device_id: 'd1', site_id: 's1', labels: { line: 'a', kind: 'press' } };
  it.each([
    [{}, false],
    [{ device_ids: ['d1'], labels: { line: 'b' } }, true],
    [{ labels: { line: 'a' } }, true],
    [{ labels: { line: 'a', kind: 'oven' } }, false],
    [{ site_ids: ['s1'] }, true],
    [{ site_ids: ['s2'], labels: { line: 'a' } }, false],
    [{ site_ids: ['s1'], labels: { line: 'a' } }, true],
  ])('%j: %s', (targets, is) => {
    expect(isTarget(targets, device)).toBe(is);
  });
  it('are divided so that every stage has a device and the last has all', () => {
    expect([-1, 0, 1, 2].map((stage) => upTo([5, 25, 100], stage, 10))).toEqual([0, 1, 3, 10]);
    expect([0, 1].map((stage) => upTo([50, 100], stage, 1))).toEqual([1, 1]);
    expect(upTo([5, 100], 0, 0)).toBe(0);
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
    expect(() => parsePorts([text])).toThrow('is no port');
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

describe('alerts', () => {
  it('lead to what they are about', () => {
    const alert = { site_id: 's', subject: 'x/1' };
    expect(subjectPath({ ...alert, kind: 'route_failing' })).toBe('/routes/x%2F1');
    expect(subjectPath({ ...alert, kind: 'deadletter_backlog' })).toBe('/deadletters?route=x%2F1');
    expect(subjectPath({ ...alert, kind: 'ota_failed' })).toBe('/devices/x%2F1');
    expect(subjectPath({ ...alert, kind: 'policy_violation' })).toBe('/deployments/x%2F1');
  });
});
