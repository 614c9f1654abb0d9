-- Ends leases. KEYS has a lock for each request, ARGV a token.
-- Answers two values for each: 1 if the token held the lock, 2 if nobody did, 3 if somebody else does, each with a
-- 0; or -1 and an error's text.
local answers = {}

local function release(lock, token)
  local owner = redis.pcall('GET', lock)
  if not owner then return 2, 0 end
  if type(owner) == 'table' then return -1, owner.err end
  if owner ~= token then return 3, 0 end
  local done = redis.pcall('DEL', lock)
  if type(done) == 'table' then return -1, done.err end
  return 1, 0
end

for i = 1, #KEYS do
  local code, value = release(KEYS[i], ARGV[i])
  answers[2 * i - 1] = code
  answers[2 * i] = value
end
return answers
