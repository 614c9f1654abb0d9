// Listens to everything that the library publishes on diagnostics_channel.

import diagnostics from 'node:diagnostics_channel'
import { atEnd } from './endings.mjs'
import { readInterface } from './typed.mjs'

/** The channels that types/channels.d.ts declares. */
export const declared = readInterface('types/channels.d.ts', 'LeaseholdChannels')

/**
 * Collects all messages until the test is over: { name, message, was }. `was` is a copy of the
 * message at that time. `faults` collects the messages that differ from their type.
 */
export function listen(t, names = declared.names) {
  const heard = []
  const faults = []
  for (const name of names) {
    const listener = (message) => {
      faults.push(...declared.faults(name, message))
      heard.push({ name, message, was: { ...message } })
    }
    diagnostics.subscribe(name, listener)
    atEnd(t, () => diagnostics.unsubscribe(name, listener))
  }
  return {
    heard,
    faults,
    /** Returns the messages of a channel, as they are now. */
    on: (name) => heard.filter((each) => each.name === name).map(({ message }) => message),
    names: () => heard.map(({ name }) => name),
  }
}
