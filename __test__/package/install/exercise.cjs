// Every installed copy must acquire, exclude, renew, release and lose a lock, and let the process
// end.

const assert = require('node:assert/strict')

/** Uses `leasehold`, the module that the project imported, with the store at that URL. */
exports.exercise = async function exercise(leasehold, store) {
  const { createLockClient, LockLostError } = leasehold
  const locks = createLockClient(store)
  try {
    const first = await locks.acquire('exercise', { ttl: 30_000 })
    assert.equal(await locks.tryAcquire('exercise'), null, 'it is held')
    await first.renew(60_000)
    assert.ok(first.remaining > 30_000, `renewed: ${first.remaining} ms remain`)
    assert.equal(await first.release(), true)

    const lost = await locks.acquire('exercise', { ttl: 200, autoRenew: false })
    const next = await locks.acquire('exercise')
    assert.equal(lost.isHeld, false)
    assert.ok(lost.signal.reason instanceof LockLostError, String(lost.signal.reason))
    assert.ok(first.fence < lost.fence && lost.fence < next.fence, 'fences grow')
    assert.equal(await next.release(), true)
  } finally {
    await locks.close()
  }
}
