// One server of the cluster. All servers have the same schedule, and one of them sends the mail.

import { createLockClient } from 'leasehold'
import { shutDownOnSignal } from '../shared/shutdown-signals.mjs'
import { config } from './config.mjs'
import { Mailer } from './mailer.mjs'

const CUSTOMERS = ['ada@example.com', 'grace@example.com', 'edsger@example.com']

const { server, cron, timeZone } = config
const mailer = new Mailer(config)
const log = (...words) => console.log(`[${server}]`, ...words)

// The store is LEASEHOLD_URL, or REDIS_URL, or a file of this machine.
const locks = createLockClient({ name: server })
const nightly = locks.schedule(
  'nightly-mail',
  cron,
  async (lease, tick) => {
    const day = tick.toISOString()
    for (const to of CUSTOMERS) {
      // If the lock is lost, stop. Another server may send the rest, or none does: too few mails
      // are better than two.
      lease.assertHeld()
      const isNew = await mailer.send({ to, day, by: server, fence: lease.fence })
      log(isNew ? 'mail to' : 'no second mail to', to)
    }
  },
  { timeZone, catchUp: 15 * 60_000 },
)
nightly.on('run', (tick) => log('sends the mail of', tick.toISOString()))
nightly.on('skipped', (tick) => log('skipped', tick.toISOString(), 'since the mail before was still being sent'))
nightly.on('missed', (tick, error) => log('missed', tick.toISOString(), error?.message ?? ''))
nightly.on('error', (error, tick) => log('failed at the mail of', tick.toISOString(), error.message))

// Send the current mails, then release the lock.
shutDownOnSignal(async () => {
  await nightly.stop()
  await locks.close()
})
log('waits for', nightly.next.toISOString())
