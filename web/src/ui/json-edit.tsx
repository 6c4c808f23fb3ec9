/** A text field for JSON that shows the line of an error. */
import { useId } from 'react';
import type { JsonCheck } from './json-check';

export function JsonEditor({ label, text, check, onChange }: { label: string; text: string; check: JsonCheck; onChange: (text: string) => void }) {
  const id = useId();
  const format = () => {
    if (check.ok) onChange(JSON.stringify(check.value, null, 2));
  };
  return (
    <div className="field">
      <div className="row spread">
        <label htmlFor={id} className="field-label">
          {label}
        </label>
        <button type="button" className="btn btn-quiet btn-small" disabled={!check.ok} onClick={format}>
          Format
        </button>
      </div>
      <textarea
        id={id}
        className="input json-editor"
        spellCheck={false}
        rows={14}
        value={text}
        aria-invalid={check.ok ? undefined : true}
        aria-describedby={check.ok ? undefined : `${id}-error`}
        onChange={(e) => onChange(e.target.value)}
      />
      {!check.ok && (
        <span id={`${id}-error`} className="field-error" role="status">
          {check.message}
        </span>
      )}
    </div>
  );
}
