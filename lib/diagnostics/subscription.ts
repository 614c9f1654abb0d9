// Listens to the channels for the messages of one client.

import type * as api from '../../index'
import * as channels from './channels'

/** The listeners. Those for calls run in the async context of the caller. */
export interface Listeners {
  readonly acquireCalled?: (message: api.AcquireMessage) => void
  readonly acquireSettled?: (message: api.AcquireMessage) => void
  readonly renewCalled?: (message: api.RenewMessage) => void
  readonly renewSettled?: (message: api.RenewMessage) => void
  readonly releaseCalled?: (message: api.ReleaseMessage) => void
  readonly releaseSettled?: (message: api.ReleaseMessage) => void
  readonly granted?: (message: api.LeaseMessage) => void
  /** Called when a lease was released, detached or lost. */
  readonly ended?: (message: api.LeaseMessage) => void
}

interface Channel<M> {
  subscribe(listener: (message: M) => void): void
  unsubscribe(listener: (message: M) => void): boolean
}

/** Adds the listeners for `client`. Returns a function that removes them. */
export function subscribe(client: api.LockClient, listeners: Listeners): () => void {
  const endings: (() => void)[] = []
  function on<M>(channel: Channel<M>, clientOf: (message: M) => api.LockClient, listener?: (message: M) => void): void {
    if (listener === undefined) return
    const heard = (message: M) => {
      if (clientOf(message) === client) listener(message)
    }
    channel.subscribe(heard)
    endings.push(() => channel.unsubscribe(heard))
  }
  const itself = (message: api.ClientMessage) => message.client
  const ofLease = ({ lease }: { readonly lease: api.LeaseMessage }) => lease.client
  on(channels.acquireTracing.start, itself, listeners.acquireCalled)
  on(channels.acquireTracing.asyncEnd, itself, listeners.acquireSettled)
  on(channels.renewTracing.start, ofLease, listeners.renewCalled)
  on(channels.renewTracing.asyncEnd, ofLease, listeners.renewSettled)
  on(channels.releaseTracing.start, ofLease, listeners.releaseCalled)
  on(channels.releaseTracing.asyncEnd, ofLease, listeners.releaseSettled)
  on(channels.granted, itself, listeners.granted)
  on(channels.released, itself, listeners.ended)
  on(channels.lost, itself, listeners.ended)
  return () => {
    for (const end of endings.splice(0)) end()
  }
}
