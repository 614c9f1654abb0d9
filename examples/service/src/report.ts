// Schedules the report: every server has the schedule, and one of them runs each tick.

import type { LockClient, Schedule } from 'leasehold'
import type { Config } from './config.js'
import type { Log } from './log.js'
import type { Payments } from './payments.js'

export function scheduleReport(
  { reportCron, timeZone }: Config,
  locks: LockClient,
  payments: Payments,
  log: Log,
): Schedule {
  const report = locks.schedule(
    'report',
    reportCron,
    async (_lease, tick) => log.info('report', { tick, payments: await payments.count() }),
    { timeZone },
  )
  report.on('error', (error, tick) => log.error('report failed', { tick, error }))
  report.on('missed', (tick, error) => log.warn('report missed', { tick, error }))
  return report
}
