import { render, screen, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { wholeList, type Pages } from './paging';
import { Table, type Column } from './table';

interface Row {
  id: string;
  name: string;
  colour: string;
}

const columns: Column<Row>[] = [
  { id: 'name', header: 'Name', cell: (r) => r.name, sort: (r) => r.name },
  { id: 'colour', header: 'Colour', cell: (r) => r.colour, sort: (r) => r.colour, hidden: true },
];
const rows: Row[] = [
  { id: '1', name: 'beta', colour: 'red' },
  { id: '2', name: 'alpha', colour: 'blue' },
];

function show(pages: Pages<Row>, more: Partial<Parameters<typeof Table<Row>>[0]> = {}) {
  return render(<Table label="Things" noun="thing" columns={columns} pages={pages} rowKey={(r) => r.id} href={(r) => `/things/${r.id}`} empty={{ icon: 'site', title: 'No things', action: <button>Make one</button> }} {...more} />);
}
const firstCells = () => screen.getAllByRole('row').slice(1).map((r) => within(r).getAllByRole('cell')[0]?.textContent);

describe('Table', () => {
  beforeEach(() => localStorage.clear());

  it('sorts by a click on the head, and says so', async () => {
    show(wholeList(rows));
    expect(firstCells()).toEqual(['beta', 'alpha']);
    await userEvent.click(screen.getByRole('button', { name: 'Name' }));
    expect(firstCells()).toEqual(['alpha', 'beta']);
    expect(screen.getByRole('columnheader', { name: 'Name' })).toHaveAttribute('aria-sort', 'ascending');
  });

  it('filters what is loaded, and says that there is more', async () => {
    show({ ...wholeList(rows), hasMore: true });
    expect(screen.getByText(/2 things loaded; there are more. Filter and order apply to what is loaded./)).toBeInTheDocument();
    await userEvent.type(screen.getByRole('searchbox'), 'alp');
    expect(firstCells()).toEqual(['alpha']);
    expect(screen.getByText(/1 of 2 loaded things shown/)).toBeInTheDocument();
    await userEvent.type(screen.getByRole('searchbox'), 'xyz');
    expect(screen.getByText('There are more things on the server.', { exact: false })).toBeInTheDocument();
    await userEvent.click(screen.getByRole('button', { name: 'Clear the filter' }));
    expect(firstCells()).toEqual(['beta', 'alpha']);
  });

  it('has no tools when it is brief: a part of a list cannot be filtered honestly', () => {
    show(wholeList(rows), { brief: true });
    expect(firstCells()).toEqual(['beta', 'alpha']);
    expect(screen.queryByRole('searchbox')).toBeNull();
    expect(screen.queryByRole('button')).toBeNull();
    expect(screen.queryByText(/loaded/)).toBeNull();
  });

  it('shows a long list a part at a time, and filters all of it', async () => {
    show(wholeList(Array.from({ length: 450 }, (_, i) => ({ id: String(i), name: `row ${i}`, colour: '' }))));
    expect(firstCells()).toHaveLength(200);
    expect(screen.getByText('200 of 450 loaded things shown')).toBeInTheDocument();
    await userEvent.type(screen.getByRole('searchbox'), '449');
    expect(firstCells()).toEqual(['row 449']);
    expect(screen.queryByRole('button', { name: 'Show more' })).toBeNull();
    await userEvent.clear(screen.getByRole('searchbox'));
    await userEvent.click(screen.getByRole('button', { name: 'Show more' }));
    expect(firstCells()).toHaveLength(450);
    expect(screen.getByText('450 things loaded')).toBeInTheDocument();
  });

  it('loads more when asked', async () => {
    const loadMore = vi.fn();
    show({ ...wholeList(rows), hasMore: true, loadMore });
    await userEvent.click(screen.getByRole('button', { name: 'Load more' }));
    expect(loadMore).toHaveBeenCalledOnce();
  });

  it('remembers which columns were chosen', async () => {
    const { unmount } = show(wholeList(rows));
    expect(screen.queryByRole('columnheader', { name: 'Colour' })).toBeNull();
    await userEvent.click(screen.getByLabelText('Colour'));
    expect(screen.getByRole('columnheader', { name: 'Colour' })).toBeInTheDocument();
    unmount();
    show(wholeList(rows));
    expect(screen.getByRole('columnheader', { name: 'Colour' })).toBeInTheDocument();
  });

  it('shows bones while it loads, what to do when it is empty, and the error with a way to try again', async () => {
    const refresh = vi.fn();
    const { rerender } = show(wholeList<Row>(undefined));
    expect(screen.getByRole('table')).toHaveAttribute('aria-busy', 'true');
    const props = { label: 'Things', noun: 'thing', columns, rowKey: (r: Row) => r.id, empty: { icon: 'site' as const, title: 'No things', action: <button>Make one</button> } };
    rerender(<Table {...props} pages={wholeList<Row>([])} />);
    expect(screen.getByRole('heading', { name: 'No things' })).toBeInTheDocument();
    expect(screen.getByRole('button', { name: 'Make one' })).toBeInTheDocument();
    rerender(<Table {...props} pages={wholeList<Row>(undefined, new Error('the disk is full'), refresh)} />);
    expect(screen.getByRole('alert')).toHaveTextContent('the disk is full');
    await userEvent.click(screen.getByRole('button', { name: 'Try again' }));
    expect(refresh).toHaveBeenCalledOnce();
  });

  it('goes from row to row with the arrow keys', async () => {
    show(wholeList(rows));
    screen.getByRole('link', { name: 'beta' }).focus();
    await userEvent.keyboard('{ArrowDown}');
    expect(screen.getByRole('link', { name: 'alpha' })).toHaveFocus();
    await userEvent.keyboard('{ArrowUp}');
    expect(screen.getByRole('link', { name: 'beta' })).toHaveFocus();
  });

  it('follows a row by a click anywhere in it', async () => {
    show(wholeList(rows), { columns: columns.map((c) => ({ ...c, hidden: false })) });
    await userEvent.click(screen.getByText('blue'));
    expect(location.pathname).toBe('/things/2');
  });
});
