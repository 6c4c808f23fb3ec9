/** The first steps on an empty system. */
import type { ReactNode } from 'react';
import { useMay, type Overview } from './api';
import { CopyBox } from '../ui/copy';
import { Card } from '../ui/facts';

export function isEmptyFleet(o: Overview): boolean {
  return Object.keys(o.sites).length === 0;
}

export type FirstStep = 'enroll' | 'route';

export function hasRoute(o: Overview): boolean {
  return Object.keys(o.routes).length > 0;
}

export function FirstSteps({ overview, onStep }: { overview: Overview; onStep: (step: FirstStep) => void }) {
  const may = useMay();
  const button = (kind: FirstStep, text: string, primary: boolean) => (
    <button type="button" className={`btn ${primary ? 'btn-primary' : ''}`} onClick={() => onStep(kind)}>
      {text}
    </button>
  );
  return (
    <div className="stack">
      <ol className="steps">
        <Step done={false} title="Create an enrollment token" text="A site proves with it that it belongs here. It works once and for a short time.">
          {may('CreateEnrollmentToken') ? button('enroll', 'Enroll a site', true) : <p className="muted">An admin has to do this.</p>}
        </Step>
        <Step done={false} title="Run the agent on the site" text="The dialog shows the exact command to run there, and says when the site has appeared." />
        <Step done={hasRoute(overview)} title="Create a route" text="Events whose topic matches are delivered to an HTTP target of yours, at least once.">
          {may('CreateRoute') ? button('route', 'Create a route', false) : <p className="muted">An admin has to do this.</p>}
        </Step>
      </ol>
      <Card title="Or try it without hardware">
        <div className="stack-tight">
          <p className="muted">The simulator enrolls sites of its own, which register devices and send events. In the folder of mainstay dev it finds the enrollment token by itself.</p>
          <CopyBox label="Command that starts the simulator" text={`mainstay edge simulate --server ${location.origin}`} />
        </div>
      </Card>
    </div>
  );
}

function Step({ done, title, text, children }: { done: boolean; title: string; text: string; children?: ReactNode }) {
  return (
    <li className={`step ${done ? 'done' : ''}`}>
      <div className="stack-tight">
        <h2>
          {title}
          {done && <span className="visually-hidden"> (done)</span>}
        </h2>
        <p className="muted">{text}</p>
        {children && <div>{children}</div>}
      </div>
    </li>
  );
}
