import { render, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it, vi } from 'vitest';
import { ApiError } from './client';
import { FormDialog } from './form';
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
  return onClose;
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
    expect(await screen.findByRole('alert')).toHaveTextContent('the disk is full (request req-1)');
    expect(screen.getByRole('button', { name: 'Make it' })).toBeEnabled();
    expect(closed).not.toHaveBeenCalled();
  });
});
