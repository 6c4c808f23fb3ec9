/** The verification of an audit log's chain, in a dialog. */
import { useMutation } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import { CopyBox } from './copy';
import { Dialog } from './dialog';
import { Facts } from './facts';
import { Failure, Notice } from './notice';
import { count, plural } from './number';
import { Time } from './time';

export interface Verification {
  ok: boolean;
  entries: number;
  verified: number;
  reason: string;
  head_hash: string;
  breaks: readonly { recorded: number; reason: string; found_at: string; acknowledged_at?: string | null; acknowledged_by?: string; note?: string }[];
  checkpoints: { count: number };
}

export function VerifyAudit({ verify, children }: { verify: () => Promise<Verification>; /** What can be done about the result. */ children?: (result: Verification, again: () => void) => ReactNode }) {
  const [open, setOpen] = useState(false);
  const check = useMutation({ mutationFn: verify });
  const v = check.data;
  return (
    <>
      <button
        type="button"
        className="btn btn-primary"
        onClick={() => {
          setOpen(true);
          check.mutate();
        }}
      >
        Verify
      </button>
      {open && (
        <Dialog title="Verification of the audit log" onClose={() => setOpen(false)}>
          <div className="dialog-body stack" role="status">
            {check.isPending && <p className="muted">Recomputing every hash…</p>}
            {check.error && <Failure error={check.error} />}
            {v && (
              <>
                <Notice tone={v.ok ? 'ok' : 'bad'}>
                  <strong>{v.ok ? `The log is whole: ${plural(v.verified, 'entry', 'entries')}, each fits the one before.` : `The log is not whole: ${v.reason}`}</strong>
                </Notice>
                {v.breaks.length > 0 && (
                  <ul className="log">
                    {v.breaks.map((b) => (
                      <li key={`${b.recorded} ${b.reason}`}>
                        <Time at={b.found_at} />
                        <span>
                          {b.reason} ({b.acknowledged_at ? `acknowledged by ${b.acknowledged_by}: ${b.note}` : 'not acknowledged'})
                        </span>
                      </li>
                    ))}
                  </ul>
                )}
                <Facts facts={[['Entries', count(v.entries)], ['Verified', count(v.verified)], ['Checkpoints', count(v.checkpoints.count)]]} />
                <CopyBox label="Hash of the last entry" text={v.head_hash} />
                {children?.(v, () => check.mutate())}
              </>
            )}
          </div>
        </Dialog>
      )}
    </>
  );
}
