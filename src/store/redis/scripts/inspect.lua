-- Tells who holds locks. KEYS has a lock and its fence key for each request.
-- Answers two values for each: 2 and 0 if nobody does; -1 and an error's text; or 1 and a list of the remaining ms
-- (-1: it never expires), the fence and the holder's name, the last two empty if another library holds the lock.
local answers = {}

local function inspect(lock, side)
  local owner = redis.pcall('GET', lock)
  if not owner then return 2, 0 end
  if type(owner) == 'table' then return -1, owner.err end
  local known = redis.pcall('GET', side)
  local fence, whose, holder = string.match(type(known) == 'string' and known or '', '^(%d+) (%S+) (.*)$')
  if whose ~= owner then fence, holder = '', '' end
  local left = redis.pcall('PTTL', lock)
  if type(left) == 'table' then return -1, left.err end
  return 1, { left, fence, holder }
end

for i = 1, #KEYS / 2 do
  local code, value = inspect(KEYS[2 * i - 1], KEYS[2 * i])
  answers[2 * i - 1] = code
  answers[2 * i] = value
end
return answers
