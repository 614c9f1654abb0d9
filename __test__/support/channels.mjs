// Listening to everything that the library tells on diagnostics_channel.

import diagnostics from 'node:diagnostics_channel'
import { atEnd } from './endings.mjs'
import { readInterface } from './typed.mjs'

/** What types/channels.d.ts says of them. */
export const declared = readInterface('types/channels.d.ts', 'LeaseholdChannels')

/**
 * Everything that is told until the test is over: { name, message, was }, where `was` is a copy of the message as it was at
 * that time. `faults` collects what is not as its type says.
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
    /** The messages told on a channel, as they are now. */
    on: (name) => heard.filter((each) => each.name === name).map(({ message }) => message),
    names: () => heard.map(({ name }) => name),
  }
}
