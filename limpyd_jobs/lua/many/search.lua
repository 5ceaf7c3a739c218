-- verb: search
-- what: looks at some jobs of a class, and tells which meet some conditions
-- request
--   model, pks, first, last, within, conditions, standing
--   names   JSON: the fields to return of the jobs that meet them; none to count only. `queue` is a queue's name
--   most    how many to return
--   by      the field whose values to count; `error` and `fingerprint` are those of the last error of a job
--   errors  JSON, for these: [{of_job, of_class, errors}…], as the test `error` in includes/finding.lua has them
-- reply
--   done   {number: how many meet them, found: [pk, [value or false…]]…, counts: {value: number},
--          looked: at how many, seen: the last pk}

--@include finding

local names, most = request.names and cjson.decode(request.names), tonumber(request.most) or math.huge
local errors = request.errors and cjson.decode(request.errors)
local by, shown = request.by and position_of(request.by), {}
for i, name in ipairs(names or {}) do shown[i] = position_of(name) end
local of_queue = positions._queue_key

-- How many bytes are returned, about: a step that has more ends.
local LARGEST = 1000000

local number, found, counts, size = 0, {}, {}, 0

-- The value of the last error that is recorded of a job; without a fingerprint, its type.
local function of_last_error(pk)
  local type, fingerprint, moment
  for _, model in ipairs(errors) do
    local last = nil
    for _, error_pk in ipairs(redis.pcall('SINTER', model.of_job .. pk, model.of_class)) do
      if not last or (tonumber(error_pk) or 0) > (tonumber(last) or 0) then last = error_pk end
    end
    local key = last and model.errors .. ':' .. last .. ':hash'
    local values = key and redis.pcall('HMGET', key, 'type', '_fingerprint', 'date_time') or {}
    if #values > 0 and (not moment or (values[3] or '') > moment) then
      type, fingerprint, moment = values[1], values[2], values[3] or ''
    end
  end
  return request.by == 'fingerprint' and fingerprint or type
end

local function value_of(pk, values)
  if errors then return of_last_error(pk) end
  return request.by == 'queue' and name_of_queue(queue_of(pk, values)) or values[by]
end

local looked, seen = for_each_found(function(pk, values)
  number = number + 1
  if by then
    local value = value_of(pk, values) or ''
    if not counts[value] then size = size + #value end
    counts[value] = (counts[value] or 0) + 1
  end
  if names then
    local row = {}
    for i, name in ipairs(names) do
      local value = shown[i] == of_queue and queue_of(pk, values) or values[shown[i]]
      row[i] = name == 'queue' and name_of_queue(value) or name ~= 'queue' and value or false
      size = size + #(row[i] or '')
    end
    found[#found + 1] = {pk, row}
  end
  return number >= most or size > LARGEST
end)
return answer('done', {number = number, found = found, counts = counts, looked = looked, seen = seen})
