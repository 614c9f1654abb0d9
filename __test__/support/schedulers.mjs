// Processes that run a schedule, whose clocks may be wrong, and what they tell.

import { fileURLToPath } from 'node:url'
import { startChild } from './child.mjs'

const SHIFTED_CLOCK = fileURLToPath(new URL('../process/fixtures/shifted-clock.mjs', import.meta.url))

/** Starts one whose clock is `shift` ms ahead. */
export const startScheduler = (t, options, shift = 0) =>
  startChild(t, 'scheduler.mjs', options, {
    nodeArgs: ['--import', SHIFTED_CLOCK],
    env: { CLOCK_SHIFT: String(shift) },
  })

export const eventsOf = (children, name) =>
  children.flatMap(({ events }) => events).filter(({ event }) => event === name)

/** What a failing test needs to be understood. */
export const story = (children) =>
  children
    .flatMap((child, i) => child.events.map((event) => ({ child: i, ...event })))
    .filter(({ event }) => event !== 'began')
    .sort((a, b) => a.at - b.at)
    .map((event) => JSON.stringify(event))
    .join('\n')
