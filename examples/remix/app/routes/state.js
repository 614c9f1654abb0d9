// Answers with the state that the page shows, as JSON for programs.

export const loader = async ({ context }) => Response.json(await context.state())
