/** Uploads an image, and shows the progress. */
import { useRef, useState, type SyntheticEvent } from 'react';
import { ApiError, errorFrom, unreachable } from '../../ui/problem';
import { Dialog } from '../../ui/dialog';
import { useDiscard } from '../../ui/discard';
import { Field } from '../../ui/field';
import { Failure } from '../../ui/notice';
import { percent } from '../../ui/number';
import { Bar } from '../../ui/progress';
import { validate } from '../../ui/schema';
import { consoleHeaders } from '../../ui/session';
import { schemas } from '../api';
import { bytes } from '../../ui/size';

/** Sends a file unchanged. It uses XMLHttpRequest, because only that reports upload progress. */
function send(path: string, file: Blob, onProgress: (share: number) => void, signal: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open('POST', path);
    for (const [name, value] of Object.entries(consoleHeaders)) request.setRequestHeader(name, value);
    request.setRequestHeader('Content-Type', 'application/octet-stream');
    request.upload.onprogress = (e) => onProgress(e.total > 0 ? e.loaded / e.total : 0);
    request.onerror = () => fail(unreachable());
    request.onabort = () => fail(new Error('The upload was ended.'));
    request.onload = () => {
      if (request.status < 300) done();
      else void errorFrom(new Response(request.responseText, { status: request.status })).then(fail);
    };
    signal.addEventListener('abort', () => request.abort());
    request.send(file);
  });
}

/** A name for the image, derived from the file's name. */
export const proposed = (file: string) => file.replace(/\.(qcow2|img|raw|vmdk|vhdx?|iso|gz|xz|zst)$/i, '').replaceAll(/[^A-Za-z0-9_.:-]+/g, '-').replaceAll(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, '');

const spec = { name: 'name', label: 'Name' };
const signatureSpec = { name: 'signature', label: 'Minisign signature', kind: 'multiline' as const, hint: 'The text of the .minisig file' };

export function Upload({ onClose, onDone }: { onClose: () => void; onDone: (name: string) => void }) {
  const [file, setFile] = useState<File>();
  const [name, setName] = useState('');
  const [signature, setSignature] = useState('');
  const [share, setShare] = useState<number>();
  const [error, setError] = useState<unknown>();
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const abort = useRef<AbortController | null>(null);
  const busy = share !== undefined;
  const { close, question } = useDiscard(file !== undefined || name !== '' || signature !== '', onClose);

  const submit = async (event: SyntheticEvent) => {
    event.preventDefault();
    setError(undefined);
    const problem = validate(schemas.AddImage, { name }).find((e) => e.path === 'name')?.message;
    setWrong({ ...(problem && { name: problem }), ...(!file && { file: 'Choose a file.' }) });
    if (problem || !file) return;
    abort.current = new AbortController();
    setShare(0);
    try {
      const query = signature.trim() ? `?signature=${encodeURIComponent(signature)}` : '';
      await send(`/v1/images/catalog/${encodeURIComponent(name)}/upload${query}`, file, setShare, abort.current.signal);
      onDone(name);
    } catch (e) {
      if (e instanceof ApiError && (e.field === 'name' || e.field === 'signature')) setWrong({ [e.field]: e.message });
      else setError(e);
      setShare(undefined);
    }
  };
  return (
    <>
      <Dialog title="Upload an image" onClose={close} locked={busy}>
        <form className="dialog-form" noValidate onSubmit={(e) => void submit(e)}>
          <div className="dialog-body stack">
            <div className="field">
              <label htmlFor="upload-file">File</label>
              <input
                id="upload-file"
                className="input"
                type="file"
                disabled={busy}
                aria-invalid={wrong['file'] ? true : undefined}
                aria-describedby="upload-file-notes"
                onChange={(e) => {
                  const chosen = e.target.files?.[0];
                  setFile(chosen);
                  if (chosen && !name) setName(proposed(chosen.name));
                }}
              />
              <span id="upload-file-notes" className={wrong['file'] ? 'field-error' : 'field-hint'}>
                {wrong['file'] ?? (file ? bytes(file.size) : 'A disk: qcow2, raw, VMDK, VHD or VHDX; or a CD: ISO')}
              </span>
            </div>
            <Field spec={spec} schema={schemas.AddImage} value={name} error={wrong['name']} onChange={(v) => setName(String(v))} />
            <Field spec={signatureSpec} schema={schemas.AddImage} value={signature} error={wrong['signature']} onChange={(v) => setSignature(String(v))} />
            {busy && (
              <div className="stack-tight" role="status">
                <Bar parts={[{ label: 'percent sent', value: Math.round(share * 100), tone: 'info' }]} total={100} />
                <span className="muted small">{share < 1 ? `${percent(share)} of ${bytes(file?.size ?? 0)}` : 'Sent. The daemon looks at it…'}</span>
              </div>
            )}
            {error !== undefined && <Failure error={error} />}
          </div>
          <div className="dialog-foot">
            <button type="button" className="btn" onClick={() => (busy ? abort.current?.abort() : close())}>
              {busy ? 'End the upload' : 'Cancel'}
            </button>
            <button type="submit" className="btn btn-primary" disabled={busy}>
              {busy ? 'Uploading…' : 'Upload'}
            </button>
          </div>
        </form>
      </Dialog>
      {question}
    </>
  );
}
