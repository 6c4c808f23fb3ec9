/** A labelled form field, with its hint and its error connected to it. */
import { useId, useState } from 'react';
import { kindOf, type FieldKind, type FieldSpec } from './draft';
import { isRequired, schemaAt, type Schema } from './schema';

const placeholders: Partial<Record<FieldKind, string>> = { pairs: 'name=value, one a line', lines: 'one a line' };

/** How many options are shown. The others are found by their names. */
const mostShown = 50;

/** Checkboxes, with a filter if there are many. Chosen options come first. */
function Several({ name, options, chosen, onChange }: { name: string; options: readonly { value: string; label: string }[]; chosen: readonly string[]; onChange: (values: string[]) => void }) {
  const [filter, setFilter] = useState('');
  const wanted = filter.trim().toLowerCase();
  const found = options.filter((o) => chosen.includes(o.value) || o.label.toLowerCase().includes(wanted)).sort((a, b) => Number(chosen.includes(b.value)) - Number(chosen.includes(a.value)));
  return (
    <>
      {options.length > 8 && <input className="input" type="search" aria-label="Filter the choices" placeholder="Filter…" value={filter} onChange={(e) => setFilter(e.target.value)} />}
      <div className="several">
        {found.slice(0, mostShown).map((o) => (
          <label key={o.value} className="check">
            <input
              type="checkbox"
              name={name}
              checked={chosen.includes(o.value)}
              onChange={(e) => onChange(e.target.checked ? [...chosen, o.value] : chosen.filter((v) => v !== o.value))}
            />
            {o.label}
          </label>
        ))}
        {options.length === 0 && <span className="muted">There is nothing to choose from.</span>}
        {found.length > mostShown && <span className="muted small">and {found.length - mostShown} more: filter to find them</span>}
      </div>
    </>
  );
}

export function Field({ spec, schema, value, error, onChange }: { spec: FieldSpec; schema: Schema; value: string | boolean; error: string | undefined; onChange: (value: string | boolean) => void }) {
  const id = useId();
  const kind = kindOf(spec, schema);
  const property = schemaAt(schema, spec.name);
  const described = property?.description as string | undefined;
  const required = isRequired(schema, spec.name);
  // In forms for changes nothing is required, so marking fields as optional would only be noise.
  const optional = !required && (schema.required?.length ?? 0) > 0 && kind !== 'choice';
  // Descriptions are Markdown, with API terms in backticks.
  const hint = spec.hint ?? described?.replaceAll('`', '');
  const notesIds = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ') || undefined;
  const common = {
    id,
    name: spec.name,
    className: 'input',
    'aria-invalid': error ? true : undefined,
    'aria-describedby': notesIds,
    'aria-required': required || undefined,
  } as const;
  const notes = (
    <>
      {hint && (
        <span id={`${id}-hint`} className="field-hint">
          {hint}
        </span>
      )}
      {error && (
        <span id={`${id}-error`} className="field-error">
          {error}
        </span>
      )}
    </>
  );

  if (kind === 'boolean') {
    return (
      <div className={`field ${spec.wide ? 'wide' : ''}`}>
        <div className="check">
          <input {...common} className="" type="checkbox" checked={value === true} onChange={(e) => onChange(e.target.checked)} />
          <label htmlFor={id}>{spec.label}</label>
        </div>
        {notes}
      </div>
    );
  }
  const text = String(value);
  if (kind === 'several') {
    return (
      <fieldset className={`field ${spec.wide ? 'wide' : ''}`} aria-describedby={notesIds}>
        <legend className="field-label">{spec.label}</legend>
        <Several name={spec.name} options={spec.options ?? []} chosen={text.split('\n').filter(Boolean)} onChange={(values) => onChange(values.join('\n'))} />
        {notes}
      </fieldset>
    );
  }
  const placeholder = spec.placeholder ?? placeholders[kind];
  return (
    <div className={`field ${spec.wide ? 'wide' : ''}`}>
      <label htmlFor={id}>
        {spec.label}
        {optional && <span className="field-optional"> (optional)</span>}
      </label>
      {kind === 'choice' ? (
        <select {...common} value={text} onChange={(e) => onChange(e.target.value)}>
          {(spec.options ?? (property?.enum as string[] | undefined)?.map((o) => ({ value: o, label: o.replaceAll('_', ' ') })) ?? []).map((o) => (
            <option key={o.value} value={o.value}>
              {o.label}
            </option>
          ))}
        </select>
      ) : kind === 'multiline' || kind === 'lines' || kind === 'pairs' || kind === 'json' ? (
        <textarea
          {...common}
          className={`input ${kind === 'multiline' ? '' : 'mono'}`}
          rows={kind === 'json' ? 7 : 3}
          spellCheck={false}
          placeholder={placeholder}
          value={text}
          onChange={(e) => onChange(e.target.value)}
        />
      ) : (
        <>
          <input
            {...common}
            list={spec.suggestions && `${id}-list`}
            type={kind === 'password' ? 'password' : kind === 'datetime' ? 'datetime-local' : 'text'}
            step={kind === 'datetime' ? 1 : undefined}
            inputMode={kind === 'number' ? 'decimal' : undefined}
            autoComplete="off"
            spellCheck={false}
            placeholder={placeholder}
            value={text}
            onChange={(e) => onChange(e.target.value)}
          />
          {spec.suggestions && (
            <datalist id={`${id}-list`}>
              {spec.suggestions.map((s) => (
                <option key={s} value={s} />
              ))}
            </datalist>
          )}
        </>
      )}
      {notes}
    </div>
  );
}
