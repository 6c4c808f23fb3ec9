/** The entry point of the hypervisor daemon's console. */
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { ApiError } from '../ui/problem';
import '../ui/styles/index.css';
import { applyTheme } from '../ui/theme';
import './styles.css';
import { App } from './app';

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
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <App />
      </QueryClientProvider>
    </StrictMode>,
  );
}
