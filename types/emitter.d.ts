// How clients, workers and schedules tell of events.

/**
 * An `EventEmitter` that knows its events: what listens to another name, or wants what is not told, does not compile. (For an
 * `EventEmitter<Events>` of `node:events` any name does.) `once()` and `on()` of `node:events` take it like any other emitter.
 */
export interface Emitter<Events extends Record<keyof Events, unknown[]>> {
  /** Calls `listener` whenever the event happens. */
  on<K extends keyof Events>(event: K, listener: (...told: Events[K]) => void): this
  /** Calls `listener` the next time the event happens. */
  once<K extends keyof Events>(event: K, listener: (...told: Events[K]) => void): this
  /** Calls `listener` no more. */
  off<K extends keyof Events>(event: K, listener: (...told: Events[K]) => void): this
  /** {@link Emitter.on}. */
  addListener<K extends keyof Events>(event: K, listener: (...told: Events[K]) => void): this
  /** {@link Emitter.off}. */
  removeListener<K extends keyof Events>(event: K, listener: (...told: Events[K]) => void): this
  /** {@link Emitter.on}, before the listeners that are there. */
  prependListener<K extends keyof Events>(event: K, listener: (...told: Events[K]) => void): this
  /** {@link Emitter.once}, before the listeners that are there. */
  prependOnceListener<K extends keyof Events>(event: K, listener: (...told: Events[K]) => void): this
  /** Calls none of them any more, or none of this event. */
  removeAllListeners(event?: keyof Events): this
  /** Calls the listeners as if the event had happened: for tests. */
  emit<K extends keyof Events>(event: K, ...told: Events[K]): boolean
  /** How many listeners the event has, or how often it has this one. */
  listenerCount<K extends keyof Events>(event: K, listener?: (...told: Events[K]) => void): number
  // What these three return can't be said more exactly: Node's types say it in terms of types that they keep to themselves, and what
  // takes an EventEmitter<Events> would refuse this one. (That of @types/node 26 does: its on() has to take any name.)
  /** The listeners of the event: functions. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  listeners<K extends keyof Events>(event: K): any[]
  /** The same with what wraps those of {@link Emitter.once}. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  rawListeners<K extends keyof Events>(event: K): any[]
  /** The events that have listeners: keys of `Events`. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  eventNames(): any[]
  /** How many listeners an event may have before Node warns of a leak; 0 is no limit. */
  setMaxListeners(n: number): this
  /** What {@link Emitter.setMaxListeners} was given. */
  getMaxListeners(): number
}
