/** Runs a program in the guest through its agent, and shows its output. */
import { useState } from 'react';
import { body } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Form } from '../../ui/form';
import { Notice } from '../../ui/notice';
import { Status } from '../../ui/status';
import { api, schemas, type Exec, type ExecOutcome, type VM } from '../api';

const shell = (value: unknown) => ['/bin/sh', '-c', value];

export function Run({ vm }: { vm: VM }) {
  const [byShell, setByShell] = useState(true);
  const [outcome, setOutcome] = useState<ExecOutcome & { ran: string }>();
  if (!vm.agent.enabled) return <Notice tone="info">This VM was made without the agent, which runs programs in the guest.</Notice>;
  if (vm.state !== 'running') return <Notice tone="info">The VM is {vm.state}. Programs can be run in it while it runs.</Notice>;
  return (
    <div className="stack">
      {!vm.agent.connected && <Notice tone="warn">The guest’s agent is not connected. It may still be starting, or not be in this guest.</Notice>}
      <Card title="Program">
        <div className="stack">
          <div className="check">
            <input id="by-shell" type="checkbox" checked={byShell} onChange={(e) => setByShell(e.target.checked)} />
            <label htmlFor="by-shell">As a command of the guest’s shell</label>
          </div>
          <Form<Exec>
            two
            key={String(byShell)}
            schema={schemas.Exec}
            fields={[
              byShell
                ? { name: 'argv', label: 'Command', kind: 'multiline', hint: 'Runs by /bin/sh -c in the guest', placeholder: 'uname -a', read: shell, wide: true }
                : { name: 'argv', label: 'Program and arguments', kind: 'lines', hint: 'The program’s path, then one argument a line', placeholder: '/bin/ls\n-l', wide: true },
              { name: 'timeout_seconds', label: 'Seconds it may take' },
              { name: 'cwd', label: 'Folder' },
              { name: 'stdin', label: 'Standard input', kind: 'multiline', advanced: true },
            ]}
            action="Run"
            onSubmit={async (input) => {
              setOutcome(undefined);
              // Without `stream`, the response is a single outcome.
              const answer = (await body(api.POST('/v1/vms/{id}/agent/exec', { params: { path: { id: vm.id } }, body: input }))) as ExecOutcome;
              setOutcome({ ...answer, ran: byShell ? (input.argv[2] ?? '') : input.argv.join(' ') });
            }}
          />
        </div>
      </Card>
      <div role="status">{outcome && <Outcome outcome={outcome} />}</div>
    </div>
  );
}

function Outcome({ outcome: o }: { outcome: ExecOutcome & { ran: string } }) {
  const streams = [['Output', o.stdout], ['Errors', o.stderr]] as const;
  return (
    <Card title={<>Result of <code>{o.ran.length > 60 ? `${o.ran.slice(0, 60)}…` : o.ran}</code></>} actions={<Status tone={o.exit_code === 0 ? 'ok' : 'bad'}>{`exit code ${o.exit_code}`}</Status>}>
      <div className="stack">
        {o.truncated && <Notice tone="warn">There was more output than is shown.</Notice>}
        {streams.map(([name, text]) =>
          text === '' ? null : (
            <div key={name} className="stack-tight">
              <span className="field-label">{name}</span>
              {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard */}
              <pre className="output" tabIndex={0} role="region" aria-label={name}>
                {text}
              </pre>
            </div>
          ),
        )}
        {o.stdout === '' && o.stderr === '' && <p className="muted">It printed nothing.</p>}
      </div>
    </Card>
  );
}
