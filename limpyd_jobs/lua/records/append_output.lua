-- verb: append output
-- what: adds what the code of a job emits to its output, of which the last chunks are kept. See output.lua
-- request
--   name, pk   of the model, and of the job
--   token      of the claim: only the run that holds the job emits
--   first      the number of the first chunk of this call in the output of the run. Chunks that are there are passed over
--   chunks     JSON, a list of texts
--   kept_for   milliseconds, after the end of the job
--   most, most_bytes   how many chunks are kept, and how many bytes of them
-- reply
--   done
--   refused    another owner holds the claim, or it was ended
--   gone

--@include envelope
--@include output

local token = checked_token(request.token)
local job = request.name .. ':' .. request.pk .. ':hash'
local held, stored = unpack(redis.call('HMGET', job, '_claim_token', '_emitted'))
if held ~= token then
  return answer(redis.call('EXISTS', job) == 1 and 'refused' or 'gone')
end

local key = output_key(request.name, request.pk)
local output = output_from(stored)
if not output or output.token ~= token then
  output = run_after(key, output, token)
  redis.call('PERSIST', key)  -- a job that had ended was put back
end
output.kept_for = request.kept_for

local number = tonumber(request.first)
for _, text in ipairs(cjson.decode(request.chunks)) do
  if number > output.number then
    redis.call('XADD', key, chunk_id(output.run, number), 'value', text)
    output.number, output.size, output.bytes = number, output.size + 1, output.bytes + #text
  end
  number = number + 1
end
keep_last(key, output, tonumber(request.most), tonumber(request.most_bytes))
redis.call('HSET', job, '_emitted', stored_output(output))
return answer('done')
