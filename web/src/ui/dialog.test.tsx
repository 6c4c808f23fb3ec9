import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it, vi } from 'vitest';
import { Dialog } from './dialog';

function show(props: { once?: boolean; locked?: boolean }) {
  const closed = vi.fn();
  render(
    <Dialog title="Tokens" onClose={closed} {...props}>
      <button type="button" onClick={closed}>
        I have copied it
      </button>
    </Dialog>,
  );
  screen.getByRole('button', { name: 'I have copied it' }).focus();
  return closed;
}

describe('Dialog', () => {
  it('closes by Escape', async () => {
    const closed = show({});
    await userEvent.keyboard('{Escape}');
    expect(closed).toHaveBeenCalledOnce();
  });

  it('that shows a secret once closes by its own button only, however often Escape is pressed', async () => {
    const closed = show({ once: true });
    await userEvent.keyboard('{Escape}{Escape}{Escape}');
    expect(closed).not.toHaveBeenCalled();
    expect(screen.queryByRole('button', { name: 'Close' })).toBeNull();
    await userEvent.click(screen.getByRole('button', { name: 'I have copied it' }));
    expect(closed).toHaveBeenCalledOnce();
  });

  it('stays open while something is under way', async () => {
    const closed = show({ locked: true });
    await userEvent.keyboard('{Escape}');
    expect(closed).not.toHaveBeenCalled();
  });

  it('that the browser closes by itself is shown again, and asked for', () => {
    const closed = show({});
    const dialog = screen.getByRole<HTMLDialogElement>('dialog');
    dialog.close();
    expect(dialog.open).toBe(true);
    expect(closed).toHaveBeenCalledOnce();
  });
});
