/**
 * Authorization in the consoles: the access classes of the contract (`x-access`), applied to the
 * signed-in caller. Operations that the caller may not use are hidden.
 */
import { createContext, use, type ReactNode } from 'react';

export interface Caller {
  subject: string;
  kind: string;
  role: string;
  /** Empty for callers that can see all organizations. */
  org_id: string;
  expires_at: string | null;
}

/** The authorization table of the services, for human callers. */
export function admits(access: string | undefined, caller: Pick<Caller, 'role' | 'org_id'>): boolean {
  const global = caller.org_id === '';
  const admin = caller.role === 'admin';
  const user = admin || caller.role === 'user';
  const reader = user || caller.role === 'viewer';
  switch (access) {
    case 'open':
    case 'any':
      return true;
    case 'viewer':
      return reader;
    case 'user':
      return user;
    case 'admin':
    case 'ingest':
      return admin;
    case 'global-viewer':
      return global && reader;
    case 'global-user':
      return global && user;
    case 'global-admin':
      return global && admin;
  }
  // Unknown classes are denied.
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

/** Applies the rules to the operations of one contract. */
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
