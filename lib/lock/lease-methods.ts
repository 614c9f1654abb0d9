// The names of the methods of a lease that its client calls. They are symbols, because users of a
// lease must not see the methods.

/** Returns what the lease is to a client; `undefined` if it belongs to another client. */
export const statusFor: unique symbol = Symbol('leasehold.statusFor')
/**
 * Stops renewing the lease, which then counts as lost; only its ttl or the end of its section frees
 * the lock.
 */
export const letExpire: unique symbol = Symbol('leasehold.letExpire')
/** Notes that the section of the lease has ended, for errors of later calls. Returns the lease. */
export const endSection: unique symbol = Symbol('leasehold.endSection')
/**
 * Makes the store keep the lease for the given ms, as a note that its key is taken. Gives no
 * ticket. From the call on, neither the end of the client nor that of the process releases the
 * lease. Rejects as `detach()` does.
 */
export const remember: unique symbol = Symbol('leasehold.remember')
/** Rejects the adoption of this lease if it is pending and belongs to the client that closes. */
export const endAdoption: unique symbol = Symbol('leasehold.endAdoption')
