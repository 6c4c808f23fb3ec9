import { render, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it, vi } from 'vitest';
import { ConfirmProvider, useConfirm } from './confirm';
import { Toasts } from './toast';

function Asker({ run, typed, done = 'plant-1 is deleted.' }: { run: () => Promise<unknown>; typed?: string; done?: string | (() => string) }) {
  const confirm = useConfirm();
  return <button onClick={() => confirm({ title: 'Delete plant-1?', body: <p>Its 4 devices go with it.</p>, action: 'Delete it', danger: true, run, ...(typed !== undefined && { typed }), done })}>Delete</button>;
}

async function ask(run: () => Promise<unknown>, typed?: string) {
  render(
    <ConfirmProvider>
      <Asker run={run} {...(typed !== undefined && { typed })} />
      <Toasts />
    </ConfirmProvider>,
  );
  await userEvent.click(screen.getByRole('button', { name: 'Delete' }));
}

describe('useConfirm', () => {
  it('says what will happen, and does nothing until told', async () => {
    const run = vi.fn(() => Promise.resolve());
    await ask(run);
    expect(screen.getByRole('dialog', { name: 'Delete plant-1?' })).toHaveTextContent('Its 4 devices go with it.');
    await userEvent.click(screen.getByRole('button', { name: 'Cancel' }));
    expect(screen.queryByRole('dialog')).toBeNull();
    expect(run).not.toHaveBeenCalled();
  });

  it('does it, closes, and says that it is done', async () => {
    await ask(() => Promise.resolve());
    await userEvent.click(screen.getByRole('button', { name: 'Delete it' }));
    await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
    expect(screen.getByRole('status')).toHaveTextContent('plant-1 is deleted.');
  });

  it('says what came of it, where that is only known then', async () => {
    let outcome = '';
    const run = () => Promise.resolve((outcome = 'It goes tonight.'));
    render(
      <ConfirmProvider>
        <Asker run={run} done={() => outcome} />
        <Toasts />
      </ConfirmProvider>,
    );
    await userEvent.click(screen.getByRole('button', { name: 'Delete' }));
    await userEvent.click(screen.getByRole('button', { name: 'Delete it' }));
    await waitFor(() => expect(screen.getByText('It goes tonight.')).toBeInTheDocument());
  });

  it('does nothing before the name is typed', async () => {
    const run = vi.fn(() => Promise.resolve());
    await ask(run, 'plant-1');
    const field = screen.getByLabelText('Type plant-1 to continue');
    await userEvent.type(field, 'plant-2{Enter}');
    expect(screen.getByRole('button', { name: 'Delete it' })).toBeDisabled();
    expect(run).not.toHaveBeenCalled();
    await userEvent.clear(field);
    await userEvent.type(field, 'plant-1{Enter}');
    await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
    expect(run).toHaveBeenCalledOnce();
  });

  it('stays with the reason when it fails', async () => {
    await ask(() => Promise.reject(new Error('the site is busy')));
    await userEvent.click(screen.getByRole('button', { name: 'Delete it' }));
    expect(await screen.findByRole('alert')).toHaveTextContent('the site is busy');
    expect(screen.getByRole('dialog')).toBeInTheDocument();
    expect(screen.getByRole('button', { name: 'Delete it' })).toBeEnabled();
  });
});
