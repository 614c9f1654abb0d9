// dashboards/grafana.json shows all metrics that leasehold/prometheus collects, and no others.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { collect } from 'leasehold/prometheus'
import { Registry } from 'prom-client'
import { atEnd } from '../support/endings.mjs'

const dashboard = createRequire(import.meta.url)('leasehold/dashboards/grafana.json')

/** Prometheus adds these labels to every series. */
const TARGET_LABELS = ['job', 'instance']
const HISTOGRAM_SUFFIX = /_(bucket|sum|count)$/

describe('the dashboard', () => {
  const queries = dashboard.panels.flatMap(({ targets = [] }) => targets)

  /** Returns the collected metrics by name, each with the names of its labels. */
  async function collected(t) {
    const register = new Registry()
    const locks = createLockClient('memory:dashboard')
    atEnd(t, () => locks.close())
    collect(locks, { register })
    return new Map(register.getMetricsAsArray().map((metric) => [metric.name, metric]))
  }

  test('the dashboard shows every metric, with labels that exist', async (t) => {
    const metrics = await collected(t)
    const shown = new Set()
    for (const { expr } of queries) {
      for (const [, name, selector] of expr.matchAll(/\b(leasehold_\w+)(?:\{([^}]*)\})?/g)) {
        const metric = metrics.get(name) ?? metrics.get(name.replace(HISTOGRAM_SUFFIX, ''))
        assert.ok(metric, `there is no metric ${name}`)
        assert.equal(metric.type === 'histogram', HISTOGRAM_SUFFIX.test(name), `${name} is a ${metric.type}`)
        if (metric.type === 'counter') assert.match(expr, /\b(rate|increase)\(/, expr)
        shown.add(metric.name)
        const by = [...expr.matchAll(/ by \(([^)]*)\)/g)].flatMap(([, names]) => names.split(/, */))
        const selected = [...(selector ?? '').matchAll(/(\w+)(?:=|!=|=~|!~)"/g)].map(([, label]) => label)
        const known = [...metric.labelNames, ...TARGET_LABELS, 'le']
        for (const label of [...selected, ...by]) assert.ok(known.includes(label), `${name} has no label ${label}`)
      }
    }
    assert.deepEqual(
      [...metrics.keys()].filter((name) => !shown.has(name)),
      [],
    )
  })

  test('the legends use labels of their queries, and the data source is a variable', () => {
    const [source] = dashboard.templating.list
    assert.deepEqual([source.type, source.query, source.name], ['datasource', 'prometheus', 'datasource'])
    const panels = dashboard.panels.filter(({ type }) => type !== 'row')
    assert.ok(panels.length >= 10)
    for (const { title, datasource, targets } of panels) {
      for (const { uid } of [datasource, ...targets.map((target) => target.datasource)]) {
        assert.equal(uid, '$' + '{datasource}', title)
      }
      for (const { expr, legendFormat } of targets) {
        for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) {
          assert.match(expr, new RegExp(`by \\([^)]*\\b${label}\\b`), `${title}: ${label} is summed away`)
        }
      }
    }
    assert.equal(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length)
  })
})
