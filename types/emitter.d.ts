// The methods for events of clients, workers and schedules.
//
// An emitter refuses unknown event names, and can still be assigned to an `EventEmitter<Events>` of
// `node:events`. With the types of Node 26, on() of an EventEmitter takes any name. To compare our
// on() with that one, TypeScript takes all of our names at once, and no listener fits all events.
// So the names include AnyEvent: no call can pass AnyEvent, and in the comparison it makes the
// arguments `any`.

type AnyEvent = { readonly anyEvent: never }

/** Names an event. */
type EventOf<Events> = keyof Events | (keyof Events & AnyEvent)

/** Lists the arguments of a listener of the event `K`. */
// biome-ignore lint/suspicious/noExplicitAny: see above
type Told<Events, K extends keyof Events> = Events[K] | (K extends AnyEvent ? any : never)

/**
 * An `EventEmitter` that knows its events: a listener for another name, or for arguments that the
 * event does not have, does not compile. (With an `EventEmitter<Events>` of `node:events`, any name
 * compiles.) `once()` and `on()` of `node:events` accept it like any other emitter.
 */
interface Emitter<Events extends Record<keyof Events, unknown[]>> {
  /** Calls `listener` whenever the event happens. */
  on<K extends EventOf<Events>>(event: K, listener: (...told: Told<Events, K>) => void): this
  /** Calls `listener` the next time the event happens. */
  once<K extends EventOf<Events>>(event: K, listener: (...told: Told<Events, K>) => void): this
  /** Removes `listener`. */
  off<K extends EventOf<Events>>(event: K, listener: (...told: Told<Events, K>) => void): this
  /** Does the same as {@link Emitter.on}. */
  addListener<K extends EventOf<Events>>(event: K, listener: (...told: Told<Events, K>) => void): this
  /** Does the same as {@link Emitter.off}. */
  removeListener<K extends EventOf<Events>>(event: K, listener: (...told: Told<Events, K>) => void): this
  /** Does the same as {@link Emitter.on}, but `listener` comes before all others. */
  prependListener<K extends EventOf<Events>>(event: K, listener: (...told: Told<Events, K>) => void): this
  /** Does the same as {@link Emitter.once}, but `listener` comes before all others. */
  prependOnceListener<K extends EventOf<Events>>(event: K, listener: (...told: Told<Events, K>) => void): this
  /** Removes all listeners, or those of this event. */
  removeAllListeners(event?: keyof Events): this
  /**
   * Calls the listeners as if the event had happened: for tests. Returns whether there were any.
   */
  emit<K extends EventOf<Events>>(event: K, ...told: Told<Events, K>): boolean
  /** Returns how many listeners the event has, or how often it has this one. */
  listenerCount<K extends EventOf<Events>>(event: K, listener?: (...told: Told<Events, K>) => void): number
  // The return types of these three can't be more exact: those of Node use types that Node does not
  // export. With other types, code that takes an EventEmitter<Events> would refuse this one.
  /** Returns the listeners of the event: functions. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  listeners<K extends EventOf<Events>>(event: K): any[]
  /** Returns the same, but with the wrappers of the listeners of {@link Emitter.once}. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  rawListeners<K extends EventOf<Events>>(event: K): any[]
  /** Returns the events that have listeners: keys of `Events`. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  eventNames(): any[]
  /** Sets how many listeners an event may have before Node warns of a leak; 0 is no limit. */
  setMaxListeners(n: number): this
  /** Returns the number that {@link Emitter.setMaxListeners} has set, or Node's default. */
  getMaxListeners(): number
}

// The other types are not exported.
export type { Emitter }
