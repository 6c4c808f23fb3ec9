/** The node: interface, mode, configuration, flow table, and drains of orchestrators. */
import { Card, Facts } from '../ui/facts';
import { count } from '../ui/number';
import { Page } from '../ui/page';
import { Status } from '../ui/status';
import { DateTime, Time } from '../ui/time';
import type { Node } from './api';
import { useLive } from './live';
import { Drops } from './overview';

export function NodePage() {
  const { reading } = useLive();
  if (!reading) {
    return (
      <Page title="Configuration">
        <p className="muted">Loading…</p>
      </Page>
    );
  }
  const { node } = reading;
  return (
    <Page title="Configuration" badge={node.notReady ? <Status tone="bad">not ready</Status> : <Status tone="ok">ready</Status>}>
      <div className="stack">
        <div className="grid">
          <Attachment node={node} />
          <File node={node} />
          <Card title="Flow table">
            <Facts
              facts={[
                ['Entries', count(node.flows.entries)],
                ['Evicted', `${count(node.flows.evictions)} because it was full`],
                ['Replies of no known flow', count(node.flows.lostReplies)],
              ]}
            />
          </Card>
          <Orchestrators node={node} />
        </div>
        <Card title="Dropped packets" flush>
          <Drops reading={reading} />
        </Card>
      </div>
    </Page>
  );
}

function Attachment({ node }: { node: Node }) {
  return (
    <Card title="Program">
      <Facts
        facts={[
          ['Interface', <code key="i">{node.interface}</code>],
          node.backendInterfaces.length > 0 && ['For backends', <code key="b">{node.backendInterfaces.join(', ')}</code>],
          ['XDP mode asked for', node.xdpMode],
          ['Attached', node.attached ? <Status key="s" tone="ok">{node.xdpModeAttached}</Status> : <Status key="s" tone="bad">not attached</Status>],
          ['Version', node.version],
          ['Started', <Time key="t" at={node.startedAt} />],
        ]}
      />
    </Card>
  );
}

function File({ node }: { node: Node }) {
  const { config } = node;
  return (
    <Card title="Configuration file">
      <Facts
        facts={[
          ['Path', <code key="p">{config.path}</code>],
          ['Loaded', <DateTime key="t" at={config.loadedAt} />],
          ['The file as it is now', config.error ? <Status key="s" tone="bad">refused</Status> : <Status key="s" tone="ok">in force</Status>],
          config.errorAt !== null && config.error !== '' && ['Refused', <DateTime key="e" at={config.errorAt} />],
        ]}
      />
    </Card>
  );
}

function Orchestrators({ node }: { node: Node }) {
  const drains = node.orchestratorDrains.filter((d) => d.backends.length > 0);
  return (
    <Card title="Drains of orchestrators">
      {drains.length === 0 ? <p className="muted">No orchestrator drains a backend.</p> : <Facts facts={drains.map((d) => [d.source, d.backends.join(', ')] as const)} />}
    </Card>
  );
}
