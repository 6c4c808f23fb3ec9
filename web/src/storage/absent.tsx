/** The page in place of a thing that is not loaded: it is gone, it cannot be read, or it is still on its way. */
import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { Empty, Failure } from '../ui/notice';
import { Page } from '../ui/page';
import { ApiError } from '../ui/problem';

const gone = (query: Pick<UseQueryResult, 'error'>) => query.error instanceof ApiError && query.error.status === 404;

/** What was read. Undefined also once the service says that it is gone, although it was read before. */
export const loaded = <T,>(query: UseQueryResult<T>): T | undefined => (gone(query) ? undefined : query.data);

export function Absent({ noun, list, query, children }: { /** What it is, as in “volume”. */ noun: string; list: { title: string; href: string }; query: UseQueryResult; /** Why it may be gone. */ children?: ReactNode }) {
  return (
    <Page title={noun.charAt(0).toUpperCase() + noun.slice(1)} above={[list]}>
      {gone(query) ? (
        <Empty icon="search" title={`There is no such ${noun} here`} action={<Link href={list.href} className="btn btn-primary">{`All ${list.title.toLowerCase()}`}</Link>}>
          {children}
        </Empty>
      ) : query.error ? (
        <Failure error={query.error} retry={() => void query.refetch()} />
      ) : (
        <p className="muted">Loading…</p>
      )}
    </Page>
  );
}
