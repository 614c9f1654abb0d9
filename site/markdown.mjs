// Renders Markdown as GitHub does where TypeDoc differs. The files stay as they are.

/** Matches text files that a browser would run or save because of the ending of their names. */
const SOURCE = /(?<=^(?:\.\.\/)*media\/)(?!.*\.(?:json|md|png|svg|txt)(?:#|$))([^#]+)/

/**
 * Returns the name under which the site has a file that a page links to: a source is plain text.
 */
export const nameOnSite = (path) => path.replace(SOURCE, '$1.txt')

export function adaptMarkdown(parser) {
  const { rules } = parser.renderer
  const render = (tokens, index, options, _env, self) => self.renderToken(tokens, index, options)

  // The anchor of a heading contains its code, too. TypeDoc makes anchors from plain text only.
  parser.core.ruler.push('headings', ({ tokens, Token }) => {
    for (const [index, { type }] of tokens.entries()) {
      if (type !== 'heading_open') continue
      const inline = tokens[index + 1]
      inline.children = inline.children.flatMap((token) =>
        token.type === 'code_inline' ? asText(Token, token.content) : token,
      )
    }
  })

  // Comments are for the tests of the code blocks.
  const html = rules.html_block
  rules.html_block = (tokens, index, ...rest) =>
    /^\s*<!--.*-->\s*$/s.test(tokens[index].content) ? '' : html(tokens, index, ...rest)

  // A table that is wider than the page scrolls separately.
  rules.table_open = (...args) => `<div class="table" role="region" aria-label="Table" tabindex="0">${render(...args)}`
  rules.table_close = (...args) => `${render(...args)}</div>`

  rules.link_open = (tokens, index, ...rest) => {
    const href = tokens[index].attrGet('href')
    if (href) tokens[index].attrSet('href', nameOnSite(href))
    return render(tokens, index, ...rest)
  }
}

/** Returns tokens that render as a code span, with its content as text. */
function asText(Token, content) {
  const [open, text, close] = [
    new Token('html_inline', '', 0),
    new Token('text', '', 0),
    new Token('html_inline', '', 0),
  ]
  open.content = '<code>'
  text.content = content
  close.content = '</code>'
  return [open, text, close]
}
