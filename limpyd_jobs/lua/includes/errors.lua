-- Errors: the failures of jobs, as records.

--@include records

-- The pk of the error that a call before made, whose reply was lost; nil without one.
local function error_made_before(error_model, fields)
  local prefix = (error_model.indexes.job_pk or NOTHING)[1]
  for _, pk in ipairs(prefix and fields.job_pk and redis.call('SMEMBERS', prefix .. fields.job_pk) or NOTHING) do
    local is_the_same = true
    for field, value in pairs(fields) do
      is_the_same = is_the_same and redis.call('HGET', hash_key(error_model, pk), field) == value
    end
    if is_the_same then return pk end
  end
end
