import { createLockClient, type Lease, type LockClient, LockLostError } from 'leasehold'

function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(what)
}

async function exercise(locks: LockClient): Promise<number> {
  const first: Lease = await locks.acquire('exercise', { ttl: 30_000 })
  check((await locks.tryAcquire('exercise')) === null, 'it is held')
  await first.renew(60_000)
  check(first.remaining > 30_000, 'it was renewed')
  check(await first.release(), 'it was released')

  const lost = await locks.acquire('exercise', { ttl: 200, autoRenew: false })
  const fence: number = await locks.withLock('exercise', (lease) => lease.fence)
  check(!lost.isHeld && lost.signal.reason instanceof LockLostError, 'it was lost')
  return fence - first.fence
}

const locks = createLockClient('memory:install')
check((await exercise(locks)) > 0, 'fences grow')
// @ts-expect-error a key is a string: the types are those of leasehold, and not `any`. For the compiler; never called.
export const refused = () => locks.acquire(42)
await locks.close()
console.log('exercised')
