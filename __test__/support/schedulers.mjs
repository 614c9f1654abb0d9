// Starts processes that run a schedule, whose clocks may be wrong, and collects their events.

import { fileURLToPath } from 'node:url'
import { startChild } from './child.mjs'

const SHIFTED_CLOCK = fileURLToPath(new URL('../process/fixtures/shifted-clock.mjs', import.meta.url))

/** Starts a process whose clock is `shift` ms ahead. */
export const startScheduler = (t, options, shift = 0) =>
  startChild(t, 'scheduler.mjs', options, {
    nodeArgs: ['--import', SHIFTED_CLOCK],
    env: { CLOCK_SHIFT: String(shift) },
  })

export const eventsOf = (children, name) =>
  children.flatMap(({ events }) => events).filter(({ event }) => event === name)

/** Returns what explains a failed test: all events of the processes. */
export const story = (children) =>
  children
    .flatMap((child, i) => child.events.map((event) => ({ child: i, ...event })))
    .filter(({ event }) => event !== 'began')
    .sort((a, b) => a.at - b.at)
    .map((event) => JSON.stringify(event))
    .join('\n')
