// The spans of one client. The parent of a span is the active span of the caller.

import type { Span, SpanContext, Tracer } from '@opentelemetry/api'
import type * as api from '../../../index'
import type { Listeners } from '../../diagnostics/subscription'
import { setTrace } from '../../diagnostics/tracing'
import { clearTimeout, setTimeout } from '../../util/real-timers'
import { acquireAttributes, failureAttributes, leaseAttributes } from './attributes'
import { Holder, MOST_LINKS, Waiter } from './holders'
import { Lookups } from './lookups'
import { SpanKind, SpanStatusCode } from './peer'
import { parseTrace, writeTrace } from './traceparent'

interface PendingAcquire {
  readonly span: Span
  readonly waiters: readonly Waiter[]
  readonly timer: NodeJS.Timeout | undefined
}

interface Hold {
  readonly span: Span
  readonly holder: Holder
}

export class Spans {
  readonly #tracer: Tracer
  readonly #inspectAfter: number
  readonly #propagate: boolean
  readonly #lookups: Lookups
  readonly #pending = new Map<api.AcquireMessage, PendingAcquire>()
  readonly #holds = new Map<api.LeaseMessage, Hold>()
  readonly #calls = new Map<object, Span>()

  constructor(tracer: Tracer, inspectAfter: number, propagate: boolean) {
    this.#tracer = tracer
    this.#inspectAfter = inspectAfter
    this.#propagate = propagate
    this.#lookups = new Lookups(inspectAfter)
  }

  readonly listeners: Listeners = {
    acquireCalled: (message) => this.#beginAcquire(message),
    acquireSettled: (message) => this.#acquireSettled(message),
    granted: (message) => this.#hold(message),
    ended: (message) => this.#ended(message),
    renewCalled: (message) => this.#call('renew', message),
    renewSettled: (message) => this.#settled(message),
    releaseCalled: (message) => this.#call('release', message),
    releaseSettled: (message) => this.#settled(message),
  }

  /** Ends all open spans, because the channels are no longer listened to. */
  end(): void {
    for (const { span, waiters, timer } of this.#pending.values()) {
      clearTimeout(timer)
      for (const waiter of waiters) waiter.end()
      span.end()
    }
    for (const { span, holder } of this.#holds.values()) {
      holder.end()
      span.end()
    }
    for (const span of this.#calls.values()) span.end()
    for (const open of [this.#pending, this.#holds, this.#calls]) open.clear()
    this.#lookups.end()
  }

  #beginAcquire(message: api.AcquireMessage): void {
    const { store, keys } = message
    const span = this.#tracer.startSpan('leasehold acquire', {
      kind: kindOf(store),
      attributes: acquireAttributes(message),
    })
    const waiters = keys.map((key) => new Waiter(store, key))
    let timer: NodeJS.Timeout | undefined
    // A span that is not sampled, and links to it, are not exported.
    const trace = span.isRecording() ? writeTrace(span.spanContext()) : undefined
    if (trace !== undefined) {
      if (this.#propagate) setTrace(message, trace)
      if (message.wait > this.#inspectAfter) {
        // Spread the queries of clients that began to wait at the same time.
        const pause = this.#inspectAfter * (1 + Math.random())
        timer = setTimeout(() => this.#addHolders(message, span, waiters), pause).unref()
      }
    }
    this.#pending.set(message, { span, waiters, timer })
  }

  /** Adds the holders in other processes to the span. The store knows the traces of their calls. */
  async #addHolders(message: api.AcquireMessage, span: Span, waiters: readonly Waiter[]): Promise<void> {
    const { client, keys } = message
    for (const [i, waiter] of waiters.entries()) {
      const key = keys[i] as string
      const { info, heldHere } = await this.#lookups.of(client, key, waiter)
      // The call and its span have ended meanwhile.
      if (!this.#pending.has(message)) return
      if (info === null) continue
      // A call for several locks may have this one already.
      const leases = info.leases.filter(({ trace }) => parseTrace(trace)?.spanId !== span.spanContext().spanId)
      for (const { holder, fence } of leases.slice(0, 1)) {
        span.addEvent('leasehold.blocked', {
          'leasehold.key': key,
          'leasehold.holder.name': holder ?? '',
          ...(fence === null ? {} : { 'leasehold.holder.fence': fence }),
          'leasehold.waiters': info.waiters.length,
        })
      }
      // If the lease is handed on in this process, the store only knows its first holder.
      if (heldHere && !info.shared) continue
      const contexts = leases.map(({ trace }) => parseTrace(trace)).filter((context) => context !== undefined)
      const remote = contexts.filter(({ spanId }) => !waiter.isHeldFor(spanId))
      link(span, remote.slice(0, MOST_LINKS), key)
    }
  }

  #acquireSettled(message: api.AcquireMessage): void {
    const acquire = this.#pending.get(message)
    if (acquire === undefined) return
    this.#pending.delete(message)
    const { span, waiters, timer } = acquire
    clearTimeout(timer)
    const { outcome, tries, fence, keys } = message
    for (const [i, waiter] of waiters.entries()) {
      link(span, outcome === 'acquired' ? waiter.predecessor() : waiter.holders(), keys[i] as string)
      waiter.end()
    }
    for (const lease of message.leases ?? []) {
      const hold = this.#holds.get(lease)
      if (hold !== undefined) hold.holder.acquireSpan = span.spanContext()
    }
    span.setAttribute('leasehold.outcome', outcome as string)
    if (tries > 1) span.setAttribute('leasehold.tries', tries)
    if (fence !== undefined && keys.length === 1) span.setAttribute('leasehold.fence', fence)
    end(span, message)
  }

  /** Begins the span of a hold. Called in the async context of the acquire. */
  #hold(message: api.LeaseMessage): void {
    const span = this.#tracer.startSpan('leasehold hold', {
      kind: SpanKind.INTERNAL,
      attributes: leaseAttributes(message),
    })
    this.#holds.set(message, { span, holder: new Holder(message, span.spanContext()) })
  }

  #ended(message: api.LeaseMessage): void {
    const hold = this.#holds.get(message)
    if (hold === undefined) return
    this.#holds.delete(message)
    const { span, holder } = hold
    holder.end()
    span.setAttribute('leasehold.outcome', message.outcome as string)
    end(span, message)
  }

  #call(name: string, message: api.RenewMessage | api.ReleaseMessage): void {
    const { lease } = message
    const span = this.#tracer.startSpan(`leasehold ${name}`, {
      kind: kindOf(lease.store),
      attributes: leaseAttributes(lease),
    })
    this.#calls.set(message, span)
  }

  #settled(message: api.RenewMessage | api.ReleaseMessage): void {
    const span = this.#calls.get(message)
    if (span === undefined) return
    this.#calls.delete(message)
    span.setAttribute('leasehold.outcome', message.outcome as string)
    end(span, message)
  }
}

/** Returns the kind of a span: by the conventions, calls that leave the process have `CLIENT`. */
function kindOf({ kind }: api.StoreIdentity): SpanKind {
  return kind === 'memory' || kind === 'sqlite' ? SpanKind.INTERNAL : SpanKind.CLIENT
}

function link(span: Span, contexts: SpanContext[], key: string): void {
  const own = span.spanContext()
  for (const context of contexts) {
    if (context.spanId === own.spanId) continue
    span.addLink({ context, attributes: { 'leasehold.link': 'blocked-by', 'leasehold.key': key } })
  }
}

function end(span: Span, message: api.Ending<string>): void {
  span.setAttributes(failureAttributes(message))
  // An abort is the caller's wish, and no error.
  if (message.error !== undefined && message.outcome !== 'aborted') {
    span.setStatus({ code: SpanStatusCode.ERROR, message: message.error.message })
  }
  span.end()
}
