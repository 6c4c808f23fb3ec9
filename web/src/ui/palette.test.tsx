import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { matching, Palette, usePaletteKey, type Find, type Found } from './palette';

const places: Found[] = [
  { label: 'Sites', href: '/sites', icon: 'site', kind: 'page' },
  { label: 'Live events', href: '/events', icon: 'event', kind: 'page' },
];

function show(find?: Find, more: Found[] = []) {
  const onClose = vi.fn();
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <Palette places={[...places, ...more]} find={find} onClose={onClose} />
    </QueryClientProvider>,
  );
  return onClose;
}

describe('Palette', () => {
  beforeEach(() => history.replaceState(null, '', '/'));

  it('goes to a page by the keyboard alone', async () => {
    const onClose = show();
    expect(screen.getByRole('combobox')).toHaveAttribute('autofocus');
    screen.getByRole('combobox').focus();
    await userEvent.keyboard('{ArrowDown}');
    expect(screen.getByRole('option', { selected: true })).toHaveTextContent('Live events');
    await userEvent.keyboard('{Enter}');
    expect(location.pathname).toBe('/events');
    expect(onClose).toHaveBeenCalledOnce();
  });

  it('finds objects on the server, once for what was typed in one go', async () => {
    const find = vi.fn<Find>(() => Promise.resolve([{ label: 'plant-1', href: '/sites/1', icon: 'site', kind: 'site' }]));
    show(find);
    await userEvent.type(screen.getByRole('combobox'), 'plant');
    await userEvent.click(await screen.findByRole('option', { name: /plant-1/ }));
    expect(location.pathname).toBe('/sites/1');
    expect(find.mock.calls.map(([text]) => text)).toEqual(['plant']);
  });

  it('says why nothing was found', async () => {
    show(() => Promise.reject(new Error('the server is busy')));
    await userEvent.type(screen.getByRole('combobox'), 'plant');
    expect(await screen.findByText('the server is busy')).toBeInTheDocument();
  });

  it('runs what takes more than a link', async () => {
    const run = vi.fn();
    show(undefined, [{ label: 'Load balancer', href: 'http://127.0.0.1:9870', icon: 'node', kind: 'service', run }]);
    await userEvent.type(screen.getByRole('combobox'), 'bal{Enter}');
    expect(run).toHaveBeenCalledOnce();
  });
});

describe('usePaletteKey', () => {
  it('opens it from anywhere, also from a field', async () => {
    const open = vi.fn();
    const Page = () => {
      usePaletteKey(open);
      return <input aria-label="Field" />;
    };
    render(<Page />);
    await userEvent.click(screen.getByLabelText('Field'));
    await userEvent.keyboard('{Control>}k{/Control}');
    await userEvent.keyboard('k');
    expect(open).toHaveBeenCalledOnce();
  });
});

describe('matching', () => {
  it('wants every word, in any order and case', () => {
    expect(matching(places, 'EVENTS live').map((p) => p.label)).toEqual(['Live events']);
    expect(matching(places, ' ').length).toBe(2);
  });
});
