/** Sends a test event to a route's target, and shows the target's response. */
import { useState } from 'react';
import { body } from '../../ui/client';
import { Dialog } from '../../ui/dialog';
import { useDiscard } from '../../ui/discard';
import { Facts } from '../../ui/facts';
import { checkJson } from '../../ui/json-check';
import { JsonEditor } from '../../ui/json-edit';
import { Failure, Notice } from '../../ui/notice';
import { count } from '../../ui/number';
import { api, type Route, type RouteTestResult } from '../api';

const example = '{\n  "test": true\n}';

export function RouteTestDialog({ route, onClose }: { route: Route; onClose: () => void }) {
  const [text, setText] = useState(example);
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState<RouteTestResult>();
  const [error, setError] = useState<unknown>();
  const check = checkJson(text);
  const { close, question } = useDiscard(text !== example && !result, onClose);
  const send = async () => {
    if (!check.ok) return;
    setBusy(true);
    setError(undefined);
    setResult(undefined);
    try {
      setResult(await body(api.POST('/routes/{id}/test', { params: { path: { id: route.id } }, body: { payload: check.value } })));
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <Dialog title={`Test ${route.name}`} onClose={close} locked={busy}>
        <div className="dialog-body stack">
          <p className="muted small">
            One made-up event goes to <code>{route.target_url}</code> now, signed like a real one. It is not retried and counts in no statistics.
          </p>
          <JsonEditor label="Payload" text={text} check={check} onChange={setText} />
          <div role="status" className="stack">
            {result && (
              <>
                <Notice tone={result.delivered ? 'ok' : 'bad'}>
                  {result.delivered ? 'The target took it.' : 'The target did not take it.'} {result.error}
                </Notice>
                <Facts
                  facts={[
                    ['Answer', result.status ? `HTTP ${result.status}` : 'none'],
                    ['Took', `${count(result.duration_ms)} ms`],
                    result.response !== undefined && result.response !== '' && ['It said', <code key="r">{result.response}</code>],
                  ]}
                />
              </>
            )}
          </div>
          {error !== undefined && <Failure error={error} />}
        </div>
        <div className="dialog-foot">
          <button type="button" className="btn" disabled={busy} onClick={close}>
            Close
          </button>
          <button type="button" className="btn btn-primary" disabled={busy || !check.ok} onClick={() => void send()}>
            {busy ? 'Sending…' : result ? 'Send again' : 'Send'}
          </button>
        </div>
      </Dialog>
      {question}
    </>
  );
}
