import { render, screen } from '@testing-library/react';
import { describe, expect, it } from 'vitest';
import { ApiError } from './problem';
import { Failure } from './notice';

describe('a failure', () => {
  it('shows the request id', () => {
    render(<Failure error={new ApiError(409, 'conflict', 'the VM is stopped', undefined, 'r1')} />);
    expect(screen.getByRole('alert')).toHaveTextContent('the VM is stopped (request id r1)');
  });

  it('shows it once where the server has said it', () => {
    render(<Failure error={new ApiError(500, 'internal', 'internal error; the log has the details under request id r1', undefined, 'r1')} />);
    expect(screen.getByRole('alert')).toHaveTextContent(/^internal error; the log has the details under request id r1$/);
  });
});
