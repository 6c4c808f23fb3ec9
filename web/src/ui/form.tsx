/**
 * Forms generated from the contract's schemas. Errors that the browser can detect are shown before
 * anything is sent. Errors of the server are shown at the field that they name.
 */
import { useEffect, useEffectEvent, useRef, useState, type ReactNode, type RefObject, type SyntheticEvent } from 'react';
import { ApiError } from './problem';
import { Dialog } from './dialog';
import { useDiscard } from './discard';
import { asked, draftOf, fieldFor, inputOf, type Draft, type FieldSpec } from './draft';
import { Field } from './field';
import { Failure, Notice } from './notice';
import { validate, type Schema } from './schema';

export interface FormProps<Input> {
  /** The schema of the request's body. */
  schema: Schema;
  fields: readonly FieldSpec[];
  /** Existing or proposed values. */
  values?: object;
  /** Adjusts the request before validation, for parts that depend on each other. */
  prepare?: (input: Input) => Input;
  /** The text of the button. */
  action: string;
  onSubmit: (input: Input) => Promise<unknown>;
  /** A warning about input that is allowed but probably not intended. */
  warning?: (input: Partial<Input>) => string | undefined;
  /** Shown below the fields: what the input would do. */
  preview?: (input: Partial<Input>) => ReactNode;
  /** Two columns where there is room. */
  two?: boolean;
  /** What an earlier try was refused for, where the form is shown again after it. */
  refused?: unknown;
  /** Shown above the fields. */
  children?: ReactNode;
}

/** The field that a message names first, as in “cpus: must be at least 1”, where the service does not name it apart. */
const named = (error: ApiError) => error.field ?? /^([A-Za-z_][\w.[\]-]*): /.exec(error.message)?.[1];

/** The server's message starts with the field's name, which the form already shows. */
function withoutName(error: ApiError): string {
  const start = `${named(error)}: `;
  const rest = error.message.startsWith(start) ? error.message.slice(start.length) : error.message;
  return `${rest.charAt(0).toUpperCase()}${rest.slice(1)}${/[.!?]$/.test(rest) ? '' : '.'}`;
}

/** The field that a refusal is about, with the message for it. Undefined if no field is asked for that it could be about. */
function refusedAt(fields: readonly FieldSpec[], draft: Draft, error: unknown): Record<string, string> | undefined {
  const name = error instanceof ApiError ? named(error) : undefined;
  const field = name ? fieldFor(asked(fields, draft), name) : undefined;
  return field ? { [field]: withoutName(error as ApiError) } : undefined;
}

/** The state of a form: draft, errors, and submission. */
function useForm<Input>({ schema, fields, values, prepare, onSubmit, refused }: FormProps<Input>, form: RefObject<HTMLFormElement | null>) {
  const [begun] = useState<Draft>(() => draftOf(schema, fields, values));
  const [draft, setDraft] = useState(begun);
  const [errors, setErrors] = useState<Record<string, string>>(() => refusedAt(fields, begun, refused) ?? {});
  const [failure, setFailure] = useState<unknown>(() => (refusedAt(fields, begun, refused) ? undefined : refused));
  const [busy, setBusy] = useState(false);

  const focusFirst = (found: Record<string, string>) => {
    const first = fields.find((f) => found[f.name]);
    if (!first) return;
    const element = form.current?.elements.namedItem(first.name);
    // The field may be under "More settings".
    if (element instanceof HTMLElement) {
      element.closest('details')?.setAttribute('open', '');
      element.focus();
    }
  };
  const show = (found: Record<string, string>) => {
    setErrors(found);
    focusFirst(found);
  };

  const tell = (e: unknown) => {
    const at = refusedAt(fields, draft, e);
    if (at) show(at);
    else setFailure(e);
  };
  const showRefused = useEffectEvent(() => focusFirst(errors));
  useEffect(() => showRefused(), []);

  const submit = async (event: SyntheticEvent) => {
    event.preventDefault();
    setFailure(undefined);
    const { input: read, errors: found } = inputOf(schema, fields, draft);
    const input = prepare ? (prepare(read as Input) as Record<string, unknown>) : read;
    let general: string | undefined;
    for (const error of validate(schema, input)) {
      const field = fieldFor(asked(fields, draft), error.path);
      if (field) found[field] ??= error.message;
      else general ??= `${error.path}: ${error.message}`;
    }
    show(found);
    if (general) setFailure(new Error(general));
    if (general || Object.keys(found).length > 0) return;
    setBusy(true);
    try {
      await onSubmit(input as Input);
    } catch (e) {
      tell(e);
    } finally {
      setBusy(false);
    }
  };

  const change = (name: string, value: string | boolean) => {
    setDraft((d) => ({ ...d, [name]: value }));
    setErrors((known) => Object.fromEntries(Object.entries(known).filter(([field]) => field !== name)));
  };
  const typed = Object.keys(draft).some((name) => draft[name] !== begun[name]);
  return { draft, errors, failure, busy, typed, submit, change };
}

function Fields<Input>({ props, state }: { props: FormProps<Input>; state: ReturnType<typeof useForm<Input>> }) {
  const field = (spec: FieldSpec) => (
    <Field key={spec.name} spec={spec} schema={props.schema} value={state.draft[spec.name] ?? ''} error={state.errors[spec.name]} onChange={(v) => state.change(spec.name, v)} />
  );
  const grid = `form-grid ${props.two ? 'two' : ''}`;
  const shown = asked(props.fields, state.draft);
  const advanced = shown.filter((f) => f.advanced);
  const input = inputOf(props.schema, props.fields, state.draft).input as Partial<Input>;
  const warning = props.warning?.(input);
  return (
    <div className="stack">
      {props.children}
      <div className={grid}>{shown.filter((f) => !f.advanced).map(field)}</div>
      {advanced.length > 0 && (
        <details className="more">
          <summary>More settings</summary>
          <div className={grid}>{advanced.map(field)}</div>
        </details>
      )}
      {props.preview?.(input)}
      <div role="status">{warning !== undefined && <Notice tone="warn">{warning}</Notice>}</div>
      {state.failure !== undefined && <Failure error={state.failure} />}
    </div>
  );
}

/** A form on a page. */
export function Form<Input>(props: FormProps<Input>) {
  const form = useRef<HTMLFormElement>(null);
  const state = useForm(props, form);
  return (
    <form ref={form} className="stack" noValidate onSubmit={(e) => void state.submit(e)}>
      <Fields props={props} state={state} />
      <div>
        <button type="submit" className="btn btn-primary" disabled={state.busy}>
          {state.busy ? 'Working…' : props.action}
        </button>
      </div>
    </form>
  );
}

/** A form in a dialog. The caller closes it after onSubmit has succeeded. */
export function FormDialog<Input>({ title, onClose, wide = false, ...props }: FormProps<Input> & { title: string; onClose: () => void; wide?: boolean }) {
  const form = useRef<HTMLFormElement>(null);
  const state = useForm(props, form);
  const { close, question } = useDiscard(state.typed, onClose);
  return (
    <>
      <Dialog title={title} onClose={close} locked={state.busy} wide={wide}>
        <form ref={form} className="dialog-form" noValidate onSubmit={(e) => void state.submit(e)}>
          <div className="dialog-body">
            <Fields props={props} state={state} />
          </div>
          <div className="dialog-foot">
            <button type="button" className="btn" disabled={state.busy} onClick={close}>
              Cancel
            </button>
            <button type="submit" className="btn btn-primary" disabled={state.busy}>
              {state.busy ? 'Working…' : props.action}
            </button>
          </div>
        </form>
      </Dialog>
      {question}
    </>
  );
}
