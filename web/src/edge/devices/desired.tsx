/**
 * The editor of a twin's desired state. To keep a save from undoing another person's change, it
 * sends the version that was read. If that is no longer the current version, the dialog shows both
 * changes.
 */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body } from '../../ui/client';
import { ApiError } from '../../ui/problem';
import { Dialog } from '../../ui/dialog';
import { useDiscard } from '../../ui/discard';
import { checkJson } from '../../ui/json-check';
import { JsonDiff } from '../../ui/json-diff';
import { JsonEditor } from '../../ui/json-edit';
import { equalJson, mergeJson } from '../../ui/json-merge';
import { Failure, Notice } from '../../ui/notice';
import { Tabs } from '../../ui/tabs';
import { toast } from '../../ui/toast';
import { api, type Twin } from '../api';

/** The editable part of a state. Updates have their own key in the twin, and their own request. */
export function withoutOTA(state: Record<string, unknown>): Record<string, unknown> {
  const { ota: _, ...rest } = state;
  return rest;
}

const show = (value: unknown) => JSON.stringify(value, null, 2);

export function DesiredDialog({ twin, onClose }: { twin: Twin; onClose: () => void }) {
  const queries = useQueryClient();
  const [base, setBase] = useState(twin);
  const [text, setText] = useState(() => show(withoutOTA(twin.desired)));
  const [theirs, setTheirs] = useState<Twin>();
  const [note, setNote] = useState('');
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const check = checkJson(text, true);
  const before = withoutOTA(base.desired);
  const changed = !check.ok || !equalJson(check.value, before);
  const path = { params: { path: { id: twin.device_id } } };
  const discard = useDiscard(changed, onClose);

  const save = async () => {
    if (!check.ok) return;
    setBusy(true);
    setError(undefined);
    setNote('');
    try {
      const saved = await body(api.PUT('/twins/{id}/desired', { ...path, body: { desired: check.value as Record<string, unknown>, expected_version: base.desired_version } }));
      await queries.invalidateQueries({ queryKey: ['devices'] });
      toast(`The desired state of ${twin.device_id} is saved as version ${saved.desired_version}.`);
      onClose();
    } catch (e) {
      if (e instanceof ApiError && (e.status === 409 || e.status === 412)) await meetOther();
      else setError(e);
      setBusy(false);
    }
  };
  const meetOther = async () => {
    try {
      setTheirs(await body(api.GET('/twins/{id}', path)));
    } catch (e) {
      setError(e);
    }
  };
  const goOn = (present: Twin, next: unknown, said: string) => {
    setBase(present);
    setText(show(next));
    setTheirs(undefined);
    setNote(said);
  };

  if (theirs && check.ok) {
    return (
      <>
        <Conflict mine={check.value} base={before} theirs={theirs} onClose={discard.close} onDiscard={onClose} onGoOn={(next, said) => goOn(theirs, next, said)} />
        {discard.question}
      </>
    );
  }
  return (
    <>
      <Dialog title={`Desired state of ${twin.device_id}`} onClose={discard.close} wide locked={busy}>
        <div className="dialog-body stack">
          <p className="muted small">Version {base.desired_version}. The device takes it over when its agent asks next. Updates (ota) are requested elsewhere and stay as they are.</p>
          {note && <Notice tone="info">{note}</Notice>}
          <JsonEditor label="Desired state" text={text} check={check} onChange={setText} />
          {check.ok && changed && (
            <div className="stack-tight">
              <span className="field-label">Your changes</span>
              <JsonDiff before={before} after={check.value} beforeLabel={`Version ${base.desired_version}`} afterLabel="Yours" />
            </div>
          )}
          {error !== undefined && <Failure error={error} />}
        </div>
        <div className="dialog-foot">
          <button type="button" className="btn" disabled={busy} onClick={discard.close}>
            Cancel
          </button>
          <button type="button" className="btn btn-primary" disabled={busy || !check.ok || !changed} onClick={() => void save()}>
            {busy ? 'Saving…' : 'Save'}
          </button>
        </div>
      </Dialog>
      {discard.question}
    </>
  );
}

function Conflict({ mine, base, theirs, onClose, onDiscard, onGoOn }: { mine: unknown; base: unknown; theirs: Twin; onClose: () => void; /** Without a question: its button says what it does. */ onDiscard: () => void; onGoOn: (next: unknown, said: string) => void }) {
  const present = withoutOTA(theirs.desired);
  const { merged, conflicts } = mergeJson(base, mine, present);
  const reapplied = conflicts.length
    ? `Your changes are applied to version ${theirs.desired_version}. Both of you changed ${conflicts.join(', ')}: yours is taken there. Look it over, then save.`
    : `Your changes are applied to version ${theirs.desired_version}. Nothing collides. Look it over, then save.`;
  return (
    <Dialog title="Somebody else has changed this meanwhile" onClose={onClose} wide>
      <div className="dialog-body stack">
        <Notice tone="warn">
          Nothing was saved. The desired state of {theirs.device_id} is at version {theirs.desired_version} now.
          {conflicts.length > 0 && (
            <>
              {' '}
              Both of you changed <b>{conflicts.join(', ')}</b>.
            </>
          )}
        </Notice>
        <Tabs
          label="What changed"
          tabs={[
            { id: 'both', label: 'Theirs and yours', content: () => <JsonDiff before={present} after={mine} beforeLabel="Theirs, saved" afterLabel="Yours, not saved" /> },
            { id: 'theirs', label: 'What they changed', content: () => <JsonDiff before={base} after={present} beforeLabel="When you began" afterLabel="Theirs" /> },
            { id: 'yours', label: 'What you changed', content: () => <JsonDiff before={base} after={mine} beforeLabel="When you began" afterLabel="Yours" /> },
          ]}
        />
      </div>
      <div className="dialog-foot">
        <button type="button" className="btn" onClick={onDiscard}>
          Discard mine and close
        </button>
        <button type="button" className="btn" onClick={() => onGoOn(present, `This is version ${theirs.desired_version}, as the other one saved it.`)}>
          Take theirs
        </button>
        <button type="button" className="btn btn-primary" onClick={() => onGoOn(merged, reapplied)}>
          Reapply mine to theirs
        </button>
      </div>
    </Dialog>
  );
}
