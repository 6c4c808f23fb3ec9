/**
 * Who may do what: the access classes of the contract (`x-access`), applied to
 * whoever is signed in. What one may not do is not shown.
 */
import { createContext, use, type ReactNode } from 'react';

export interface Caller {
  subject: string;
  kind: string;
  role: string;
  /** Empty for callers that see everything. */
  org_id: string;
  expires_at: string | null;
}

/** The authorization table of the services, as far as people are concerned. */
export function admits(access: string | undefined, caller: Pick<Caller, 'role' | 'org_id'>): boolean {
  const global = caller.org_id === '';
  const admin = caller.role === 'admin';
  const reader = admin || caller.role === 'viewer';
  switch (access) {
    case 'open':
    case 'any':
      return true;
    case 'viewer':
      return reader;
    case 'admin':
    case 'ingest':
      return admin;
    case 'global-viewer':
      return global && reader;
    case 'global-admin':
      return global && admin;
  }
  // A class that is not known here is not granted.
  return false;
}

const CallerContext = createContext<Caller | null>(null);

export function CallerProvider({ caller, children }: { caller: Caller; children: ReactNode }) {
  return <CallerContext value={caller}>{children}</CallerContext>;
}

export function useCaller(): Caller {
  const caller = use(CallerContext);
  if (!caller) throw new Error('useCaller needs a CallerProvider around it');
  return caller;
}

/** Binds the rule to one contract's operations. */
export function createAccess<Operation extends string>(classes: Record<Operation, string>) {
  function useMay(): (operation: Operation) => boolean {
    const caller = useCaller();
    return (operation) => admits(classes[operation], caller);
  }
  function Allowed({ operation, children }: { operation: Operation; children: ReactNode }) {
    return useMay()(operation) ? <>{children}</> : null;
  }
  return { useMay, Allowed };
}
