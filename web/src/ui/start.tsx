/** Starts a console: its theme, its requests, and its page. */
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { ApiError } from './problem';
import './styles/index.css';
import { applyTheme } from './theme';

export function start(app: ReactNode): void {
  applyTheme();
  const queries = new QueryClient({
    defaultOptions: {
      queries: {
        // Retrying helps only with a lost connection or an overloaded server.
        retry: (failures, error) => failures < 2 && error instanceof ApiError && (error.status === 0 || error.status === 503),
      },
    },
  });
  const root = document.getElementById('root');
  if (!root) return;
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queries}>{app}</QueryClientProvider>
    </StrictMode>,
  );
}
