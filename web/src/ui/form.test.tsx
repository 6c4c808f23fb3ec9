import { render, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it, vi } from 'vitest';
import { ApiError } from './problem';
import { Form, FormDialog } from './form';
import type { Schema } from './schema';

const schema: Schema = {
  type: 'object',
  required: ['name'],
  properties: { name: { type: 'string', minLength: 1, description: 'What it is called' }, size: { type: 'integer', minimum: 1 }, enabled: { type: 'boolean', default: true } },
};

function show(onSubmit: (input: unknown) => Promise<unknown>, onClose = vi.fn()) {
  render(
    <FormDialog
      title="Make a thing"
      schema={schema}
      fields={[
        { name: 'name', label: 'Name' },
        { name: 'enabled', label: 'Enabled' },
        { name: 'size', label: 'Size', advanced: true },
      ]}
      action="Make it"
      onSubmit={onSubmit}
      onClose={onClose}
    />,
  );
  screen.getByLabelText('Name').focus();
  return onClose;
}

async function leave(by: string) {
  if (by === 'Escape') await userEvent.keyboard('{Escape}');
  else await userEvent.click(screen.getByRole('button', { name: by }));
}

describe('FormDialog', () => {
  it('says what is wrong at the field before anything is sent', async () => {
    const send = vi.fn();
    show(send);
    await userEvent.click(screen.getByRole('button', { name: 'Make it' }));
    const name = screen.getByLabelText('Name');
    expect(name).toHaveFocus();
    expect(name).toBeInvalid();
    expect(name).toHaveAccessibleDescription('What it is called Fill this in.');
    expect(send).not.toHaveBeenCalled();
    await userEvent.type(name, 'x');
    expect(name).not.toBeInvalid();
  });

  it('sends what was filled in, with the defaults', async () => {
    const send = vi.fn(() => Promise.resolve());
    show(send);
    await userEvent.type(screen.getByLabelText('Name'), 'x{Enter}');
    await waitFor(() => expect(send).toHaveBeenCalledWith({ name: 'x', enabled: true }));
  });

  it('opens the settings that hide the field with the error', async () => {
    show(vi.fn());
    await userEvent.type(screen.getByLabelText('Name'), 'x');
    await userEvent.click(screen.getByText('More settings'));
    await userEvent.type(screen.getByLabelText(/Size/), '0');
    await userEvent.click(screen.getByText('More settings'));
    await userEvent.click(screen.getByRole('button', { name: 'Make it' }));
    expect(screen.getByText('Must be at least 1.').closest('details')).toHaveAttribute('open');
  });

  it('shows what the server refuses at the field that it names', async () => {
    show(() => Promise.reject(new ApiError(400, 'invalid', 'name: is taken', 'name')));
    await userEvent.type(screen.getByLabelText('Name'), 'x{Enter}');
    await waitFor(() => expect(screen.getByLabelText('Name')).toBeInvalid());
    expect(screen.getByText('Is taken.')).toBeInTheDocument();
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('shows any other failure with the id to ask for, and stays', async () => {
    const closed = show(() => Promise.reject(new ApiError(507, 'storage', 'the disk is full', undefined, 'req-1')));
    await userEvent.type(screen.getByLabelText('Name'), 'x{Enter}');
    expect(await screen.findByRole('alert')).toHaveTextContent('the disk is full (request id req-1)');
    expect(screen.getByRole('button', { name: 'Make it' })).toBeEnabled();
    expect(closed).not.toHaveBeenCalled();
  });

  it.each(['Escape', 'Close', 'Cancel'])('closes by %s at once while nothing is typed', async (by) => {
    const closed = show(vi.fn());
    await leave(by);
    expect(closed).toHaveBeenCalledOnce();
  });

  it.each(['Escape', 'Close', 'Cancel'])('asks before %s throws away what was typed', async (by) => {
    const closed = show(vi.fn());
    await userEvent.type(screen.getByLabelText('Name'), 'x');
    await leave(by);
    expect(closed).not.toHaveBeenCalled();
    await userEvent.click(screen.getByRole('button', { name: 'Keep editing' }));
    expect(screen.queryByRole('dialog', { name: 'Discard what you typed?' })).toBeNull();
    expect(screen.getByLabelText('Name')).toHaveValue('x');
    // Browsers give it focus again.
    screen.getByLabelText('Name').focus();
    await leave(by);
    await userEvent.click(screen.getByRole('button', { name: 'Discard it' }));
    expect(closed).toHaveBeenCalledOnce();
  });

  it('does not ask when what was typed is gone again', async () => {
    const closed = show(vi.fn());
    await userEvent.type(screen.getByLabelText('Name'), 'x{Backspace}');
    await leave('Escape');
    expect(closed).toHaveBeenCalledOnce();
  });

  it('says what is allowed but hardly meant, while it is so', async () => {
    render(<FormDialog<{ name?: string }> title="Make a thing" schema={schema} fields={[{ name: 'name', label: 'Name' }]} warning={(input) => (input.name === 'x' ? 'x is nothing.' : undefined)} action="Make it" onSubmit={vi.fn()} onClose={vi.fn()} />);
    expect(screen.queryByText('x is nothing.')).toBeNull();
    await userEvent.type(screen.getByLabelText('Name'), 'x');
    expect(screen.getByText('x is nothing.')).toBeInTheDocument();
  });

  it('offers choices of which several can be made, and shows what they would do', async () => {
    const submit = vi.fn().mockResolvedValue(undefined);
    const options = Array.from({ length: 12 }, (_, i) => ({ value: `id-${i}`, label: `site-${i}` }));
    const listSchema: Schema = { type: 'object', properties: { sites: { type: 'array', items: { type: 'string' } } } };
    render(
      <FormDialog<{ sites?: string[] }>
        title="Choose"
        schema={listSchema}
        fields={[{ name: 'sites', label: 'Sites', kind: 'several', options }]}
        preview={(input) => <p>{input.sites?.length ?? 0} chosen</p>}
        action="Take them"
        onSubmit={submit}
        onClose={vi.fn()}
      />,
    );
    await userEvent.click(screen.getByLabelText('site-3'));
    await userEvent.type(screen.getByRole('searchbox'), 'site-11');
    expect(screen.getAllByRole('checkbox').map((c) => c.parentElement?.textContent)).toEqual(['site-3', 'site-11']);
    await userEvent.click(screen.getByLabelText('site-11'));
    expect(screen.getByText('2 chosen')).toBeInTheDocument();
    await userEvent.click(screen.getByRole('button', { name: 'Take them' }));
    expect(submit).toHaveBeenCalledExactlyOnceWith({ sites: ['id-3', 'id-11'] });
  });
});

describe('Form', () => {
  const again = (refused: unknown) => render(<Form schema={schema} fields={[{ name: 'name', label: 'Name' }]} values={{ name: 'data' }} refused={refused} action="Make it" onSubmit={() => Promise.resolve()} />);

  it('shows what an earlier try was refused for at its field, which has the focus', () => {
    again(new ApiError(409, 'CONFLICT', 'is taken', 'name'));
    expect(screen.getByText('Is taken.')).toBeVisible();
    expect(screen.getByLabelText('Name')).toHaveFocus();
    expect(screen.getByLabelText('Name')).toHaveValue('data');
  });

  it('shows below the fields what is about none of them', () => {
    again(new ApiError(503, 'UNAVAILABLE', 'the disk is full'));
    expect(screen.getByRole('alert')).toHaveTextContent('the disk is full');
  });
});
